use crate::{Device, OpenOptions};

#[test]
fn software_queues_have_bounds() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &[7; 4096]).unwrap();
    let uri = format!("kernel:{}?readonly=yes", file.path().display());
    let open = |queues: usize| Device::open_with(&uri, &OpenOptions::new().software_queues(queues));
    match open(65_535) {
        Ok(_) => {}
        Err(why) => return eprintln!("skipped: {why}"),
    }
    for queues in [0, 65_536] {
        let error = open(queues).unwrap_err().to_string();
        assert!(error.contains(&format!("{queues} software queues: there can be 1 to 65535")), "{error}");
    }
}
