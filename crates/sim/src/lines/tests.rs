use super::*;

/// Four CPUs on two nodes; a line costs 1, 50 or 120, and 90 from memory.
fn lines() -> Lines {
    Lines::new(&Machine::new(4, 2), 2)
}

#[test]
fn a_line_costs_what_the_way_to_its_last_writer_costs() {
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
fn a_write_to_a_line_that_others_have_copies_of_takes_them_away() {
    let mut lines = lines();
    lines.write(0, 0);
    assert_eq!(lines.write(0, 0), Nanos(1));
    lines.read(3, 0);
    assert_eq!(lines.write(0, 0), Nanos(120));
    assert_eq!(lines.read(3, 0), Nanos(120));
}

#[test]
fn lines_that_do_not_exist_harm_nobody() {
    assert_eq!((lines().read(0, 9), lines().write(700, 9)), (Nanos(90), Nanos(90)));
}
