//! `list`, `id` and `doctor` as a user meets them, on whatever machine this is.

use std::fs;

use serde_json::Value;

use crate::support::Place;

#[test]
fn id_shows_embedded_controller() {
    let place = Place::new();
    let shown: Value =
        serde_json::from_str(&place.reap("id mem:64M?namespaces=2&lba=4096 --json").ok().stdout)
            .unwrap();
    assert_eq!(
        (&shown["controller"]["nn"], &shown["controller"]["cntrltype"]),
        (&2.into(), &1.into())
    );
    let namespaces = shown["namespaces"].as_array().unwrap();
    assert_eq!(
        namespaces.iter().map(|ns| (ns["nsid"].as_u64(), ns["nsze"].as_u64())).collect::<Vec<_>>(),
        [(Some(1), Some(16384)), (Some(2), Some(16384))]
    );
    let one = place.reap("id mem:64M?namespaces=2 -n 2").ok().stdout;
    assert!(
        one.contains("NVME Identify Controller:\nvid ")
            && one.contains("\nNVME Identify Namespace 2:\nnsze "),
        "{one}"
    );
    assert!(
        one.contains("\nCompletion modes: ") && one.lines().all(|line| line.chars().count() <= 120),
        "{one}"
    );
    assert!(!one.contains("Namespace 1:"), "{one}");
}

#[test]
fn id_reports_missing_namespace() {
    let ended = Place::new().reap("id mem:1M -n 9");
    // Of one that is not active the page is all zeroes (Base 5.1.13.2.1), or the controller
    // refuses.
    assert!(
        ended.stdout.contains("nsze    : 0\n") || ended.stderr.contains("Identify Namespace 9"),
        "{ended:?}"
    );
}

#[test]
fn id_shows_a_file() {
    let place = Place::new();
    fs::write(place.path("disk"), vec![0; 8192]).unwrap();
    let text = place.reap("id kernel:disk -o json").ok().stdout;
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (&shown["namespaces"][0]["bytes"], shown["controller"].is_null()),
        (&8192.into(), true),
        "{text}"
    );
    assert!(shown["modes"].as_array().unwrap().contains(&"poll".into()), "{text}");
    assert!(place.reap("id kernel:disk -n 1").stderr.contains("takes no NVMe commands"));
}

#[test]
fn id_refuses_in_a_sentence() {
    let place = Place::new();
    for (words, says) in [
        ("id nonsense", "expected `mem:SIZE`"),
        ("id pcie:ff:1f.7", "there is no such PCI function here"),
        ("id kernel:nothing", "there is no such file"),
        ("id /dev/null", "only regular files, block devices and NVMe namespaces"),
        ("id mem:1M -n 0", "give a whole number from 1 to 4294967294"),
        ("id", "<URI>"),
        ("doctor --for cake", "possible values: kernel, pcie, trace, figures"),
        ("list -o xml", "possible values: normal, json"),
    ] {
        let ended = place.reap(words);
        assert!(ended.code != Some(0) && ended.stderr.contains(says), "{words}: {ended:?}");
    }
}

#[test]
fn list_works_on_any_machine() {
    let place = Place::new();
    let shown: Value = serde_json::from_str(&place.reap("list --json").ok().stdout).unwrap();
    for key in ["Controllers", "BlockDevices"] {
        assert!(shown[key].is_array(), "{shown}");
    }
    let text = place.reap("list").ok().stdout;
    assert_eq!(
        shown["Controllers"].as_array().unwrap().is_empty(),
        text.contains("No NVMe controllers found"),
        "{text}"
    );
    for disk in shown["BlockDevices"].as_array().unwrap() {
        assert!(text.contains(disk["DevicePath"].as_str().unwrap()), "{text}");
    }
}

#[test]
fn doctor_status_reports_missing() {
    let place = Place::new();
    for wanted in ["kernel", "pcie,trace", "figures"] {
        let ended = place.reap(&format!("doctor --for {wanted} --json"));
        let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
        let checks = shown["checks"].as_array().unwrap();
        let counts = |check: &&Value| {
            check["state"] == "missing" && wanted.split(',').any(|name| check["for"] == name)
        };
        let missing = checks.iter().filter(counts).count();
        assert_eq!(
            (shown["possible"] == true, ended.code),
            (missing == 0, Some(i32::from(missing > 0))),
            "{wanted}: {shown}"
        );
        assert!(
            checks.iter().all(|check| check["command"].is_string()
                == (check["state"] == "missing" || check["state"] == "limited")),
            "{shown}"
        );
    }
}

#[test]
fn doctor_runs_selected_checks_only() {
    let place = Place::new();
    let text = place.reap("doctor --for kernel").stdout;
    assert!(
        text.starts_with("kernel: (")
            && !["pcie: (", "reap trace (", "figures ("].iter().any(|other| text.contains(other)),
        "{text}"
    );
    let shown: Value =
        serde_json::from_str(&place.reap("doctor --for trace,figures --json").stdout).unwrap();
    let groups =
        shown["checks"].as_array().unwrap().iter().map(|check| check["for"].as_str().unwrap());
    assert_eq!(groups.collect::<std::collections::BTreeSet<_>>(), ["figures", "trace"].into());
    let all = place.reap("doctor").stdout;
    assert!(
        ["kernel: (", "pcie: (", "reap trace (", "figures ("]
            .iter()
            .all(|group| all.contains(group)),
        "{all}"
    );
}

#[test]
fn shells_offer_modes_and_profiles() {
    let place = Place::new();
    place.reap("install p").ok();
    let bash = place.read("p/share/bash-completion/completions/reap");
    let offered = |command: &str, option: &str| {
        let of = &bash[bash
            .find(&format!("\n        reap__subcmd__{command})"))
            .or(bash.find(&format!("\n        reap__{command})")))
            .unwrap()..];
        let at = of.find(&format!("                {option})\n")).unwrap();
        of[at..].lines().nth(1).unwrap().to_owned()
    };
    for (command, option, words) in [
        ("run", "--completion", "poll adaptive kernel-iopoll"),
        ("compare", "--modes", "poll adaptive kernel-iopoll"),
        ("sim", "--modes", "poll adaptive\""),
    ] {
        let line = offered(command, option);
        assert!(line.contains("compgen -W") && line.contains(words), "{command} {option}: {line}");
    }
    // Names that are offered are not all that there are, and a slip is still told.
    place.reap("run --completion pol").fails_with(&["did you mean 'poll'"]);
    place.reap("compare --modes pol").fails_with(&["did you mean 'poll'"]);
    place.reap("sim --modes pol").fails_with(&["did you mean 'poll'"]);
    place
        .reap("compare --modes adaptive,adaptive@0.5")
        .fails_with(&["column 9: parameters follow '?': write adaptive?delay-exponent=2"]);
}
