use super::*;

/// Four CPUs on two nodes; a line costs 1, 50 or 120, and 90 from memory.
fn lines() -> Lines {
    Lines::new(&Machine::new(4, 2), 2)
}

#[test]
fn cache_line_cost_follows_distance() {
    let mut lines = lines();
    assert_eq!(lines.write(0, 0), Nanos(90), "from memory");
    assert_eq!(lines.write(0, 0), Nanos(1), "own");
    assert_eq!(lines.read(1, 0), Nanos(50), "same node");
    assert_eq!(lines.read(1, 0), Nanos(1), "a copy stays");
    assert_eq!(lines.read(2, 0), Nanos(120), "other node");
    assert_eq!(lines.write(3, 0), Nanos(120));
    assert_eq!(lines.read(1, 0), Nanos(120), "the write took the copy away");
    assert_eq!(lines.write(0, 1), Nanos(90), "lines are apart");
}

#[test]
fn write_invalidates_shared_copies() {
    let mut lines = lines();
    lines.write(0, 0);
    assert_eq!(lines.write(0, 0), Nanos(1));
    lines.read(3, 0);
    assert_eq!(lines.write(0, 0), Nanos(120));
    assert_eq!(lines.read(3, 0), Nanos(120));
}

#[test]
fn unknown_cache_lines_are_harmless() {
    assert_eq!((lines().read(0, 9), lines().write(700, 9)), (Nanos(90), Nanos(90)));
}
