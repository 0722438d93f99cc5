//! Made-up crates: which circles are found in them, and which roundabout imports are none.

use crate::circles::circles;

fn found(files: &[(&str, &str)]) -> Vec<String> {
    circles("lib.rs", &|path| {
        files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    })
}

/// Two files of which the first names the second; how the second names the first is told.
fn answered(by: &str) -> Vec<String> {
    let first = "use crate::b::B; pub struct A; pub fn a() {} pub trait Has { fn has(&self) {} } impl Has for B {} pub const FIRST: u8 = 1;";
    found(&[
        ("lib.rs", "pub mod a; mod b;"),
        ("a.rs", first),
        ("b.rs", &format!("pub struct B; {by}")),
    ])
}

#[test]
fn circles_are_found_however_named() {
    for (by, items) in [
        ("use crate::a::A;", "A"),
        ("use super::a::A as Other;", "A"),
        ("use crate::{a::{self, A, a}};", "A, a"),
        ("use super::a::Has as _;", "Has"),
        ("use super::a; fn f() -> a::A { a::A }", "A"),
        ("use crate::a::*; struct C(A);", "A"),
        ("use super::*; struct C(a::A);", "A"),
        ("fn f() { use crate::a::a; a() }", "a"),
        ("fn f() { crate::a::a() }", "a"),
        ("impl crate::a::Has for u8 {}", "Has"),
        ("struct C<T: crate::a::Has>(Option<Vec<T>>);", "Has"),
        ("fn f(n: u8) -> bool { matches!(n, crate::a::FIRST) }", "FIRST"),
        ("macro_rules! m { ($x:expr) => { $crate::a::a() } }", "a"),
        (
            "use crate::a::FIRST; fn f(n: u8) -> bool { match n { FIRST => true, _ => false } }",
            "FIRST",
        ),
        ("mod inner { fn f() { super::super::a::a() } }", "a"),
        ("mod inner { use crate::a::A; pub use self::A as Again; }", "A"),
        ("pub use crate::a::A; fn f(_: A) {}", "A"),
        ("#[derive(Parser)] struct C { #[arg(value_parser = crate::a::a)] n: u8 }", "a"),
        ("#[serde(deserialize_with = \"crate::a::a\")] struct C;", "a"),
        ("#[cfg(not(test))] use crate::a::A;", "A"),
    ] {
        assert_eq!(answered(by), [format!("a → b → a (B of b; {items} of a)")], "{by}");
    }
}

#[test]
fn non_items_make_no_circle() {
    for by in [
        "",
        "use super::a;",
        "pub use crate::a::A;",
        "pub(crate) use super::a::{A, a};",
        "#[cfg(test)] use crate::a::A;",
        "#[cfg(all(test, loom))] fn f() { crate::a::a() }",
        "impl B { #[cfg(test)] fn f() { crate::a::a() } }",
        "#[cfg(test)] mod tests { use crate::a::A; }",
        "use crate::a::*; fn f(a: u8) -> u8 { a + 1 }",
        "use crate::a::*; fn f() { println!(\"{}\", self.a) }",
        "use crate::a::*; mod inner { struct A; struct C(A); }",
        "use a::A; mod a { pub struct A; }",
        "use ::a::A; use std::a;",
        "pub(in crate::a) fn f() {}",
    ] {
        assert_eq!(answered(by), [""; 0], "{by}");
    }
}

#[test]
fn directory_is_one_part() {
    let child = ("shop/till.rs", "use super::Shop; pub struct Till; fn of(_: &Shop) {}");
    assert_eq!(
        found(&[
            ("lib.rs", "mod shop;"),
            ("shop.rs", "mod till; use till::Till; pub struct Shop(Till);"),
            child
        ]),
        [""; 0]
    );
    // The same two as parts of their own.
    let shop = ("shop.rs", "use crate::till::Till; pub struct Shop(Till);");
    let apart = found(&[
        ("lib.rs", "mod shop; mod till;"),
        shop,
        ("till.rs", "use crate::shop::Shop; pub struct Till; fn of(_: &Shop) {}"),
    ]);
    assert_eq!(apart, ["shop → till → shop (Till of till; Shop of shop)"]);
    // A child of one of them.
    let shelf = ("shop/shelf.rs", "use crate::till::Till; pub struct Shelf(Till);");
    let till = ("till.rs", "use crate::shop::shelf::Shelf; pub struct Till; fn of(_: &Shelf) {}");
    let through =
        found(&[("lib.rs", "mod shop; mod till;"), ("shop.rs", "pub mod shelf;"), shelf, till]);
    assert_eq!(through, ["shop::shelf → till → shop::shelf (Till of till; Shelf of shop::shelf)"]);
}

#[test]
fn macro_items_belong_to_callers() {
    let made = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "id! { /// Of A.\n A(u16) } use crate::b::B;"),
        ("b.rs", "pub struct B(super::a::A);"),
    ];
    assert_eq!(found(&made), ["a → b → a (B of b; A of a)"]);
}

#[test]
fn root_file_is_checked_too() {
    let root = "mod run; pub const PROGRAM: &str = \"\"; fn main() { run::run() }";
    let told = found(&[("lib.rs", root), ("run.rs", "pub fn run() { let _ = crate::PROGRAM; }")]);
    assert_eq!(told, ["crate → run → crate (run of run; PROGRAM of crate)"]);
}

/// A facade shows its children's items; they name one another through it.
fn facade(shows: &str) -> Vec<String> {
    found(&[
        ("lib.rs", "mod paths; mod user;"),
        ("paths.rs", &format!("mod place; mod policy; {shows}")),
        ("paths/place.rs", "pub struct Place;"),
        ("paths/policy.rs", "use super::Place; pub struct Policy(Place);"),
        ("user.rs", "use crate::paths::{Place, Policy};"),
    ])
}

#[test]
fn reexports_lead_to_definitions() {
    assert_eq!(facade("pub use place::Place; pub use self::policy::*;"), [""; 0]);
    assert_eq!(facade("pub use self::{place::Place, policy::Policy};"), [""; 0]);
}

#[test]
fn circle_through_nested_reexports() {
    let told = found(&[
        ("lib.rs", "mod low; mod mid; mod top; pub use top::Top as Shown;"),
        ("low.rs", "use crate::Shown; pub struct Low(Shown);"),
        ("mid.rs", "pub use crate::low::Low as Deep;"),
        ("top.rs", "use crate::mid::Deep; pub struct Top(Deep);"),
    ]);
    assert_eq!(told, ["low → top → low (Top of top; Low of low)"]);
}

#[test]
fn shortest_circle_is_reported_first() {
    let told = found(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::c::C; pub struct B;"),
        ("c.rs", "use crate::{a::A, d::D}; pub struct C;"),
        ("d.rs", "use crate::c::C; pub struct D;"),
    ]);
    assert_eq!(told, ["c → d → c (D of d; C of c)", "a → b → c → a (B of b; C of c; A of a)"]);
}

#[test]
fn imports_that_lead_round_end() {
    let told = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub use crate::b::*; pub use crate::b::X; fn f() { X; y() }"),
        ("b.rs", "pub use crate::a::*; pub use crate::a::X; fn f() { X; y() }"),
    ]);
    assert_eq!(told, [""; 0]);
}
