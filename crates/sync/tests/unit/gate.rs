use super::*;

#[test]
fn nobody_comes_in_while_it_is_shut() {
    let gate = Gate::default();
    drop(gate.enter().unwrap());
    gate.shut();
    assert!(gate.enter().is_none());
    gate.shut();
    gate.open();
    assert!(gate.enter().is_some());
}
