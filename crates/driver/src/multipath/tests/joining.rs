//! Whether paths lead to one namespace.

use super::*;
use crate::Namespace;

fn identity(controller: u16) -> PathIdentity {
    let namespace = Namespace {
        nsid: Nsid(1),
        blocks: 8,
        block_log2: 9,
        boundary: 0,
        read_only: false,
        deallocates_zeroes: true,
        shared: true,
        ana_group: 1,
        nguid: [1; 16],
        eui64: [2; 8],
        uuid: [3; 16],
    };
    PathIdentity { nqn: "nqn.2026-11.test:a".into(), controller, namespace }
}

fn joined(change: impl FnOnce(&mut PathIdentity)) -> Result<Namespace, JoinError> {
    let mut second = identity(2);
    change(&mut second);
    join(&[identity(1), second])
}

#[test]
fn paths_to_one_namespace_join() {
    assert_eq!(joined(|_| ()), Ok(identity(1).namespace));
    // Fields of the controller may differ.
    assert!(
        joined(|path| (path.namespace.boundary, path.namespace.read_only) = (256, true)).is_ok()
    );
}

/// Each mismatch names the path, the field and both values.
#[test]
fn mismatches_show_both_values() {
    let differs = |field: &str, found: &str, expected: &str| {
        format!(
            "path 1 leads to another namespace than path 0: {field} is {found}, and {expected} on path 0"
        )
    };
    type Case = (fn(&mut PathIdentity), String);
    let cases: [Case; 8] = [
        (
            |p| p.nqn = "nqn.2026-11.test:b".into(),
            differs("subsystem NQN (SUBNQN)", "nqn.2026-11.test:b", "nqn.2026-11.test:a"),
        ),
        (|p| p.namespace.nsid = Nsid(2), differs("namespace identifier (NSID)", "2", "1")),
        (|p| p.namespace.blocks = 9, differs("size (NSZE)", "9 blocks", "8 blocks")),
        (
            |p| p.namespace.block_log2 = 12,
            differs("format (LBADS)", "blocks of 4096 bytes", "blocks of 512 bytes"),
        ),
        (|p| p.namespace.nguid = [0; 16], differs("NGUID", &"00".repeat(16), &"01".repeat(16))),
        (|p| p.namespace.eui64 = [9; 8], differs("EUI64", &"09".repeat(8), &"02".repeat(8))),
        (
            |p| p.namespace.uuid[15] = 4,
            differs(
                "UUID",
                "03030303-0303-0303-0303-030303030304",
                "03030303-0303-0303-0303-030303030303",
            ),
        ),
        (|p| p.namespace.ana_group = 2, differs("ANA group (ANAGRPID)", "2", "1")),
    ];
    for (change, message) in cases {
        assert_eq!(joined(change).unwrap_err().to_string(), message);
    }
}

#[test]
fn invalid_joins_are_refused() {
    let message = |error: Result<Namespace, JoinError>| error.unwrap_err().to_string();
    assert!(
        message(joined(|path| path.namespace.shared = false))
            .starts_with("path 1: namespace 1 is private to its controller")
    );
    assert_eq!(
        message(joined(|path| path.controller = 1)),
        "path 1 and path 0 are the same controller (CNTLID 0x0001): each path needs a controller of its own"
    );
    let nameless = |controller| {
        let mut path = identity(controller);
        (path.namespace.nguid, path.namespace.eui64, path.namespace.uuid) =
            ([0; 16], [0; 8], [0; 16]);
        path
    };
    assert!(
        message(join(&[nameless(1), nameless(2)])).contains("(NGUID, EUI64 and UUID are all zero)")
    );
    let many = |count| (0..count).map(identity).collect::<Vec<_>>();
    assert_eq!(join(&[]), Err(JoinError::None));
    assert_eq!(join(&many(65)), Err(JoinError::TooMany { given: 65 }));
    // A single path may lead to any namespace.
    let mut alone = nameless(1);
    alone.namespace.shared = false;
    assert!(join(&[alone]).is_ok());
    assert!(join(&many(64)).is_ok());
}
