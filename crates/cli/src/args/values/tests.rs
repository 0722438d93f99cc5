use super::*;

fn taken(line: &str) -> Result<(Vec<String>, Option<String>), String> {
    let words = line.split_whitespace().map(OsString::from).collect();
    let (left, file) = take_jobs(words, |name| name == "device")?;
    Ok((left.into_iter().map(|word| word.into_string().unwrap()).collect(), file))
}

#[test]
fn job_options_split_from_own() {
    let (left, file) = taken("--bs=4k --device mem:1G --name=a --rw randread --time_based --runtime 5 f.fio --name b --direct=1").unwrap();
    assert_eq!(left, ["--device", "mem:1G", "f.fio"]);
    assert_eq!(
        file.unwrap(),
        "[global]\nbs=4k\n[a]\nname=a\nrw=randread\ntime_based\nruntime=5\n[b]\nname=b\ndirect=1\n"
    );
    // One dash, and what is no option of anything's.
    let (left, file) = taken("-device=mem:1G -bs=4k f.fio -x -").unwrap();
    assert_eq!(
        (left.join(" "), file.as_deref()),
        ("--device=mem:1G f.fio -x -".into(), Some("[global]\nbs=4k\n"))
    );
    let (left, file) = taken("job.fio --histograms -- --name").unwrap();
    assert_eq!(
        (left.as_slice(), file),
        (["job.fio", "--histograms", "--", "--name"].map(String::from).as_slice(), None)
    );
}

#[test]
fn values_unfit_for_files_fail() {
    assert!(taken("--minimal --name=a").unwrap_err().contains("fio's --minimal"));
    assert!(taken("--name=a --rw").unwrap_err().contains("--rw needs a value"));
    assert!(taken("--name=a --rw --bs=4k").unwrap_err().contains("--rw needs a value"));
    assert!(taken("--name=a --description=x#y").unwrap_err().contains("comment"));
}
