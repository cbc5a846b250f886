//! GGUF files: reader, writer, block layouts, reference (de)quantisation.
