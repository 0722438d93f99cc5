//! The modules of one crate, and which file a path leads to: through child modules, imports, globs
//! and re-exports, until the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

/// Where a crate's sources come from: a path below `src`, for example `link/embedded.rs`.
pub type Sources<'a> = &'a dyn Fn(&str) -> Option<String>;

pub struct Modules {
    pub files: Vec<File>,
    modules: Vec<Module>,
}

pub struct File {
    /// As the crate's paths name it: `link::embedded`; the root is `crate`.
    pub name: String,
    pub syntax: syn::File,
    pub module: ModuleId,
}

pub type ModuleId = usize;
pub type FileId = usize;

/// A module with a file of its own, or one in braces within another's.
struct Module {
    file: FileId,
    parent: Option<ModuleId>,
    /// A name may stand for a module and for a function at once.
    names: BTreeMap<String, Vec<Name>>,
    globs: Vec<Vec<String>>,
}

enum Name {
    Module(ModuleId),
    /// A type or a trait: a path may go on to what belongs to it.
    Type,
    /// A function, say, where a path ends.
    Value,
    Import(Vec<String>),
}

/// What a path leads to.
pub enum Target {
    Module(ModuleId),
    Item(FileId, String),
}

impl Modules {
    /// The crate with this root file, `lib.rs` or `main.rs`: what it reaches by `mod`, tests left
    /// out.
    pub fn read(root: &str, sources: Sources) -> Self {
        let mut all = Self { files: Vec::new(), modules: Vec::new() };
        all.read_file("crate".into(), root, "", None, sources);
        all
    }

    fn read_file(
        &mut self,
        name: String,
        path: &str,
        below: &str,
        parent: Option<ModuleId>,
        sources: Sources,
    ) -> ModuleId {
        let text = sources(path).unwrap_or_else(|| panic!("no file {path}"));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        let file = self.files.len();
        let module = self.add(file, parent);
        self.files.push(File { name, syntax: syntax.clone(), module });
        Declared { all: self, sources, at: module, below: below.to_owned() }.visit_file(&syntax);
        module
    }

    fn add(&mut self, file: FileId, parent: Option<ModuleId>) -> ModuleId {
        self.modules.push(Module { file, parent, names: BTreeMap::new(), globs: Vec::new() });
        self.modules.len() - 1
    }

    /// The module in braces of this name.
    pub fn within(&self, at: ModuleId, name: &str) -> Option<ModuleId> {
        self.modules[at].names.get(name)?.iter().find_map(|found| match found {
            Name::Module(module) => Some(*module),
            Name::Type | Name::Value | Name::Import(_) => None,
        })
    }

    /// What a path that stands in this module leads to; nothing if it leads out of the crate.
    pub fn resolve(&self, at: ModuleId, path: &[String]) -> Vec<Target> {
        self.follow(at, path, &mut BTreeSet::new())
    }

    fn follow(
        &self,
        at: ModuleId,
        path: &[String],
        seen: &mut BTreeSet<(ModuleId, String)>,
    ) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return vec![Target::Module(at)] };
        match first.as_str() {
            "crate" => self.follow(0, rest, seen),
            "self" => self.follow(at, rest, seen),
            "super" => {
                self.modules[at].parent.map_or(Vec::new(), |parent| self.follow(parent, rest, seen))
            }
            name => self.named(at, name, rest, seen),
        }
    }

    /// Names come before globs, as for the compiler. A name is followed once, so that imports that
    /// go round end.
    fn named(
        &self,
        at: ModuleId,
        name: &str,
        rest: &[String],
        seen: &mut BTreeSet<(ModuleId, String)>,
    ) -> Vec<Target> {
        if !seen.insert((at, name.to_owned())) {
            return Vec::new();
        }
        let module = &self.modules[at];
        let targets = match module.names.get(name) {
            Some(found) => found
                .iter()
                .flat_map(|found| match found {
                    Name::Module(module) => self.follow(*module, rest, seen),
                    Name::Value if !rest.is_empty() => Vec::new(),
                    Name::Type | Name::Value => vec![Target::Item(module.file, name.to_owned())],
                    Name::Import(path) => self.follow(at, &[path.as_slice(), rest].concat(), seen),
                })
                .collect(),
            None => {
                let globs = module
                    .globs
                    .iter()
                    .flat_map(|path| self.follow(at, path, seen))
                    .collect::<Vec<_>>();
                let modules = globs.iter().filter_map(|target| match target {
                    Target::Module(module) => Some(*module),
                    Target::Item(..) => None,
                });
                modules.flat_map(|module| self.named(module, name, rest, seen)).collect()
            }
        };
        seen.remove(&(at, name.to_owned()));
        targets
    }
}

/// Gathers what a file declares. What stands in a function's body counts as its module's.
struct Declared<'a> {
    all: &'a mut Modules,
    sources: Sources<'a>,
    at: ModuleId,
    /// Where the files of its child modules are: `link/`.
    below: String,
}

impl Declared<'_> {
    fn name(&mut self, name: String, is: Name) {
        self.all.modules[self.at].names.entry(name).or_default().push(is);
    }

    fn child(&mut self, item: &syn::ItemMod) {
        let name = item.ident.to_string();
        let below = format!("{}{name}/", self.below);
        let child = if let Some((_, items)) = &item.content {
            let child = self.all.add(self.all.modules[self.at].file, Some(self.at));
            let mut inner = Declared { all: self.all, sources: self.sources, at: child, below };
            items.iter().for_each(|item| inner.visit_item(item));
            child
        } else {
            let places = [format!("{}{name}.rs", self.below), format!("{below}mod.rs")];
            let path =
                places.iter().find(|path| (self.sources)(path).is_some()).unwrap_or(&places[0]);
            let full = below.trim_end_matches('/').replace('/', "::");
            self.all.read_file(full, path, &below, Some(self.at), self.sources)
        };
        self.name(name, Name::Module(child));
    }
}

impl<'ast> Visit<'ast> for Declared<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if for_tests(attributes(item)) {
            return;
        }
        match item {
            syn::Item::Mod(item) => return self.child(item),
            syn::Item::Use(item) => {
                for import in imports(item) {
                    match import.name {
                        Some(name) => self.name(name, Name::Import(import.path)),
                        None if import.glob => self.all.modules[self.at].globs.push(import.path),
                        None => {}
                    }
                }
            }
            syn::Item::Macro(call) if call.ident.is_none() => {
                made_by(call).into_iter().for_each(|name| self.name(name, Name::Type));
            }
            _ => item_name(item).into_iter().for_each(|(name, is)| self.name(name.to_string(), is)),
        }
        visit::visit_item(self, item);
    }
}

/// One leaf of a `use` tree.
pub struct Import {
    pub path: Vec<String>,
    /// None for `as _` and for a glob.
    pub name: Option<String>,
    pub glob: bool,
}

pub fn imports(item: &syn::ItemUse) -> Vec<Import> {
    let mut leaves = Vec::new();
    if item.leading_colon.is_none() {
        leaves_of(&item.tree, &mut Vec::new(), &mut leaves);
    }
    leaves
}

fn leaves_of(tree: &syn::UseTree, prefix: &mut Vec<String>, out: &mut Vec<Import>) {
    // `a::{self}` is `a`.
    let path_to =
        |prefix: &[String], ident: &syn::Ident| match ident == "self" && !prefix.is_empty() {
            true => prefix.to_vec(),
            false => [prefix, &[ident.to_string()]].concat(),
        };
    match tree {
        syn::UseTree::Path(tree) => {
            prefix.push(tree.ident.to_string());
            leaves_of(&tree.tree, prefix, out);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| leaves_of(tree, prefix, out))
        }
        syn::UseTree::Name(name) => {
            let path = path_to(prefix, &name.ident);
            out.push(Import { name: path.last().cloned(), path, glob: false });
        }
        syn::UseTree::Rename(rename) => {
            let name = Some(rename.rename.to_string()).filter(|name| name != "_");
            out.push(Import { path: path_to(prefix, &rename.ident), name, glob: false });
        }
        syn::UseTree::Glob(_) => out.push(Import { path: prefix.clone(), name: None, glob: true }),
    }
}

fn item_name(item: &syn::Item) -> Option<(&syn::Ident, Name)> {
    match item {
        syn::Item::Enum(item) => Some((&item.ident, Name::Type)),
        syn::Item::Struct(item) => Some((&item.ident, Name::Type)),
        syn::Item::Trait(item) => Some((&item.ident, Name::Type)),
        syn::Item::Type(item) => Some((&item.ident, Name::Type)),
        syn::Item::Union(item) => Some((&item.ident, Name::Type)),
        syn::Item::Const(item) => Some((&item.ident, Name::Value)),
        syn::Item::Fn(item) => Some((&item.sig.ident, Name::Value)),
        syn::Item::Macro(item) => Some((item.ident.as_ref()?, Name::Value)),
        syn::Item::Static(item) => Some((&item.ident, Name::Value)),
        _ => None,
    }
}

/// What a macro called among the items defines, as far as can be told: the first name that begins
/// with a capital.
fn made_by(call: &syn::ItemMacro) -> Option<String> {
    let idents = call.mac.tokens.clone().into_iter().filter_map(|token| match token {
        proc_macro2::TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    });
    idents.into_iter().find(|name| name.starts_with(char::is_uppercase))
}

pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether the item is there only for tests: under `cfg(test)`, `cfg(loom)` (the models) or the
/// feature `testing`.
pub fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args().is_ok_and(|condition| needs_test(&condition))
        }
        _ => false,
    })
}

fn needs_test(condition: &syn::Meta) -> bool {
    let list = match condition {
        syn::Meta::List(list) => list,
        syn::Meta::NameValue(pair) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else {
                return false;
            };
            return pair.path.is_ident("feature") && value.value() == "testing";
        }
        syn::Meta::Path(path) => return path.is_ident("test") || path.is_ident("loom"),
    };
    let parts = list
        .parse_args_with(syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated)
        .unwrap_or_default();
    match () {
        () if list.path.is_ident("all") => parts.iter().any(needs_test),
        () if list.path.is_ident("any") => !parts.is_empty() && parts.iter().all(needs_test),
        () => false,
    }
}
