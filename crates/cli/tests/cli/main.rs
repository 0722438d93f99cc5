//! The command as a user meets it.

mod bad_input;
mod calibrate;
mod compare;
mod fiojobs;
mod kernel;
mod machine;
mod replay;
mod run;
mod sim;
mod streams;
mod support;
