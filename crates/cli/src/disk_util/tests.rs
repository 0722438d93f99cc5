use super::*;

#[test]
fn partitions_count_on_their_disk() {
    let sys = tempfile::tempdir().unwrap();
    let disk = sys.path().join("vda");
    let partition = disk.join("vda1");
    fs::create_dir_all(&partition).unwrap();
    fs::write(partition.join("partition"), "1\n").unwrap();
    fs::write(disk.join("stat"), "  100 1 800 20 200 2 1600 40 0 30 60 0 0 0 0 0 0\n").unwrap();
    let (found, before) = counters(&partition).unwrap();
    assert_eq!((&found, &before), (&fs::canonicalize(&disk).unwrap(), &counters(&disk).unwrap().1));
    fs::write(disk.join("stat"), "  110 3 900 25 230 9 1900 47 0 80 90 0 0 0 0 0 0\n").unwrap();
    let after = counters(&disk).unwrap().1;
    let wanted = json!({
        "name": "vda", "read_ios": 10, "write_ios": 30, "read_merges": 2, "write_merges": 7, "read_ticks": 5, "write_ticks": 7,
        "in_queue": 30, "util": 50.0,
    });
    assert_eq!(entry(&found, &before, &after, 100.0), wanted);
    // Busy all the time, and not more.
    assert_eq!(entry(&found, &before, &after, 10.0)["util"], 100.0);
    // A kernel with fewer counters than are read, and none.
    fs::write(disk.join("stat"), "1 2 3\n").unwrap();
    assert!(counters(&disk).is_none() && counters(&sys.path().join("sda")).is_none());
}
