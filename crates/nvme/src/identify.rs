//! Identify data structures.
