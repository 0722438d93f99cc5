//! `reap calibrate`.

use crate::support::Place;

#[test]
fn calibrated_prices_load_in_scenarios() {
    let place = Place::new();
    let ended = place.reap("calibrate --output here.toml");
    for part in ["thread.syscall", "Not measured here", "interrupt.entry"] {
        assert!(ended.stdout.contains(part), "{part:?} is not in\n{}", ended.stdout);
    }
    // On a machine that is too busy to tell, no list is left that somebody would believe.
    if ended.code == Some(0) {
        let list = place.read("here.toml");
        assert!(
            list.contains("[thread]\n")
                && list.contains("# measured, ")
                && list.contains("# not measured here"),
            "{list}"
        );
        place.reap("sim --costs here.toml --modes poll").ok();
    } else {
        assert!(!place.path("here.toml").exists());
        ended.fails_with(&["here.toml is not written: ", "came out as 0", "calibrate again"]);
    }
    place.write("noise.toml", "base = \"vm\"\n[thread]\ntimer = 0\n");
    place.reap("sim --costs noise.toml --modes poll").fails_with(&[
        "price list noise.toml: thread.timer came out as 0",
        "`reap calibrate` again",
    ]);
    place
        .reap("calibrate --output no/such/place")
        .fails_with(&["cannot write the results to no/such/place"]);
    place.reap("calibrate --sleep-us 0").fails_with(&["--sleep-us"]);
}
