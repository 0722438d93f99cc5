use super::*;

#[test]
fn stretches_add_up_path_by_path() {
    let path = |ios, in_flight, lat_ns, state: &str| PathFigures { ios, in_flight, lat_ns, state: state.into(), ..PathFigures::default() };
    let first = [path(100, 1.0, 10, "optimized"), path(0, 0.0, 0, "lost")];
    let second = [path(300, 3.0, 30, "optimized"), path(50, 1.0, 90, "optimized")];
    let sum = over_all(&[&first, &second]);
    assert_eq!(sum, [path(400, 2.0, 25, "optimized"), path(50, 0.5, 90, "optimized")]);
    assert!(over_all(&[]).is_empty());
}
