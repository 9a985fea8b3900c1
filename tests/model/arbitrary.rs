//! Schemas and batches at random.
