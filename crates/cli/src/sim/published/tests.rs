use ::sim::published::{Score, Use};

use super::*;

fn row(id: &'static str, used: Use, score: Option<Score>) -> Row {
    Row { id, published: 200.0, simulated: 150.0, unit: "1/s", used, score }
}

#[test]
fn the_table_has_every_row_and_says_how_the_predictions_did() {
    let score = |score| Score { baseline: "base", effect: 2.0, score, without: 0.7 };
    let rows = [
        row("base", Use::Calibrate, None),
        row("good", Use::Predict, Some(score(0.05))),
        row("bad", Use::Predict, Some(score(0.3))),
        row("vague", Use::Shape, None),
    ];
    let text = show(&rows, 120);
    for words in ["base", "vague", "-25.0", "0.050", "0.700", "calibrate", "shape", "2, median score 0.175, worst 0.300 (bad)"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // What the words mean is said, and which posts these are; nothing is wider than its line but an address.
    for width in [80, 120] {
        let text = show(&rows, width);
        for words in ["shape: ", "predict: ", "calibrate: ", "Jeff Garzik", "linux-nvme/2017-January/", "score"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{text}");
    }
    let json = serde_json::to_value(JsonRow::new(&rows[1])).unwrap();
    for (key, value) in [("id", "good"), ("unit", "1/s"), ("use", "predict"), ("baseline", "base")] {
        assert_eq!(json[key], value, "{json}");
    }
    assert_eq!((&json["published"], &json["simulated"], &json["score_without"]), (&200.0.into(), &150.0.into(), &0.7.into()));
    assert!(serde_json::to_value(JsonRow::new(&rows[0])).unwrap().get("score").is_none());
}
