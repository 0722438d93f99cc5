use super::*;

#[test]
fn shut_gate_admits_none() {
    let gate = Gate::default();
    drop(gate.enter().unwrap());
    gate.shut();
    assert!(gate.enter().is_none());
    gate.shut();
    gate.open();
    assert!(gate.enter().is_some());
}
