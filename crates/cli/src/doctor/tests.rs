use super::*;

fn check(wanted: &'static str, state: State) -> Check {
    Check { wanted, name: "thing", state, found: "found\u{1b}".into(), why: "it matters", command: Some("mend".into()) }
}

#[test]
fn only_what_is_missing_for_what_is_wanted_counts() {
    let checks = [check("kernel", State::Limited), check("pcie", State::Missing)];
    assert_eq!(missing(&checks, &[Wanted::Kernel]).count(), 0);
    assert_eq!(missing(&checks, &[Wanted::Kernel, Wanted::Pcie]).count(), 1);
}

#[test]
fn each_check_is_told_with_its_reason_and_its_command() {
    let text = text(&[check("kernel", State::Ok), check("pcie", State::Missing)], &[Wanted::Pcie]);
    assert!(text.contains("  MISSING  thing                found?\n"), "{text}");
    assert!(text.contains("it matters\n") && text.contains("→ mend\n") && text.ends_with("\nMissing for pcie: thing.\n"), "{text}");
}
