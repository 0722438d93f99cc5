//! The command as a user meets it.

mod bad_input;
mod compare;
mod run;
mod support;
