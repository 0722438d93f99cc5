//! Device URIs of every scheme, and names of modes.

use completion::Mode;
use reap::{DeviceUri, KernelUri, MultipathUri, UriError, VfioUserUri};

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<DeviceUri>() {
        Ok(uri) => drop(uri.to_string()),
        Err(error) => points_into(&error, text),
    }
    match text.parse::<MultipathUri>() {
        Ok(uri) => assert!(!uri.paths.is_empty()),
        Err(error) => points_into(&error, text),
    }
    match text.parse::<KernelUri>() {
        Ok(uri) => assert_eq!(
            uri.to_string().parse::<KernelUri>().as_ref(),
            Ok(&uri),
            "what it writes reads otherwise"
        ),
        Err(error) => points_into(&error, text),
    }
    match text.parse::<VfioUserUri>() {
        Ok(uri) => assert_eq!(
            uri.to_string().parse::<VfioUserUri>().as_ref(),
            Ok(&uri),
            "what it writes reads otherwise"
        ),
        Err(error) => points_into(&error, text),
    }
    if let Err(error) = DeviceUri::behind(text) {
        points_into(&error, text);
    }
    match text.parse::<Mode>() {
        Ok(mode) => assert_eq!(
            mode.to_string().parse::<Mode>().ok(),
            Some(mode),
            "what it writes reads otherwise"
        ),
        Err(error) => drop(error.to_string()),
    }
}

fn points_into(error: &UriError, text: &str) {
    assert!(
        (1..=text.len() + 2).contains(&error.column),
        "column {} of {} bytes",
        error.column,
        text.len()
    );
    assert!(!error.to_string().is_empty());
}
