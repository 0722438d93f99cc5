use super::*;

fn check(wanted: Wanted, state: State) -> Check {
    Check { wanted, name: "thing", state, found: "found\u{1b}".into(), why: "it matters", command: Some("mend".into()) }
}

#[test]
fn only_wanted_checks_decide_status() {
    let checks = [check(Wanted::Kernel, State::Limited), check(Wanted::Pcie, State::Missing)];
    assert_eq!(missing(&checks, &[Wanted::Kernel]).count(), 0);
    assert_eq!(missing(&checks, &[Wanted::Kernel, Wanted::Pcie]).count(), 1);
}

#[test]
fn checks_print_reason_and_command() {
    let text = text(&[check(Wanted::Kernel, State::Ok), check(Wanted::Pcie, State::Missing)], &[Wanted::Pcie], 120);
    assert!(text.contains("  MISSING  thing                found?\n"), "{text}");
    assert!(text.contains("it matters\n") && text.contains("→ mend\n") && text.ends_with("\nMissing for pcie: thing.\n"), "{text}");
}

/// What is told is broken at the width of the terminal; a command is copied, and stays whole.
#[test]
fn text_wraps_and_commands_do_not() {
    let command = "reap bind 0000:01:00.0 --user somebody && reap doctor --for pcie --for kernel --for trace";
    let long = Check { found: "found at last ".repeat(12), command: Some(command.into()), ..check(Wanted::Pcie, State::Missing) };
    let text = text(&[long], &[Wanted::Pcie], 80);
    assert!(text.contains(command), "{text}");
    let longest = text.lines().filter(|line| !line.contains('→')).map(|line| line.chars().count()).max();
    assert!(longest <= Some(80) && text.lines().count() > 6, "{text}");
}
