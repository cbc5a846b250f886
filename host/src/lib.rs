//! The sparkinfer engine.
