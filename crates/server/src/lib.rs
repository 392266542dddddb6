//! Workers and listeners.
