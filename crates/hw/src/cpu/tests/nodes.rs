use super::super::*;

/// A machine with these nodes, each with its CPUs and distances.
fn machine(online: &str, nodes: &[(u16, &str, &str)]) -> Nodes {
    let dir = std::env::temp_dir().join(format!(
        "reap-nodes-{}-{}",
        std::process::id(),
        online.trim().replace(',', "_")
    ));
    for (node, cpus, distance) in nodes {
        let node = dir.join(format!("node{node}"));
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), cpus).unwrap();
        fs::write(node.join("distance"), distance).unwrap();
    }
    fs::write(dir.join("online"), online).unwrap();
    let nodes = Nodes::read(&dir);
    fs::remove_dir_all(&dir).unwrap();
    nodes
}

#[test]
fn cpus_and_distances_are_read() {
    let nodes = machine("0-1\n", &[(0, "0-1,4\n", "10 21\n"), (1, "2-3,5\n", "21 10\n")]);
    assert_eq!([0, 1, 2, 3, 4, 5, 99].map(|cpu| nodes.of(cpu)), [0, 0, 1, 1, 0, 1, 0]);
    assert_eq!(
        (nodes.count(), nodes.distance(0, 1), nodes.distance(1, 1), nodes.distance(0, 2)),
        (2, Some(21), Some(10), None)
    );
}

#[test]
fn sparse_nodes_are_read() {
    let nodes = machine("0,2\n", &[(0, "0-3\n", "10 28\n"), (2, "\n", "28 10\n")]);
    assert_eq!(
        (nodes.count(), nodes.distance(0, 2), nodes.distance(2, 2)),
        (3, Some(28), Some(10))
    );
    assert_eq!(nodes.distance(1, 0), None);
}

#[test]
fn no_sysfs_is_one_node() {
    let nodes = Nodes::read(Path::new("/nowhere"));
    assert_eq!((nodes.count(), nodes.of(3), nodes.distance(0, 0)), (1, 0, Some(10)));
    assert!(Nodes::detect().count() >= 1);
}
