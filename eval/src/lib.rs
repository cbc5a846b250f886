//! The accuracy gate.
