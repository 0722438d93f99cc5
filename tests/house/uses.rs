//! Which other files of its crate a file names: in private imports, and by path in its code. What
//! it only re-exports it does not name, and `mod x;` alone names nothing. A path that ends at a
//! module names nothing either: what is taken out of that module does.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::modules::{self, FileId, ModuleId, Modules, Target};

/// The items by which one file names another.
pub type Edges = BTreeMap<(FileId, FileId), BTreeSet<String>>;

pub fn edges(modules: &Modules) -> Edges {
    let mut edges = Edges::new();
    for (id, file) in modules.files.iter().enumerate() {
        Named { modules, file: id, at: file.module, bound: Vec::new(), edges: &mut edges }
            .visit_file(&file.syntax);
    }
    edges
}

struct Named<'a> {
    modules: &'a Modules,
    file: FileId,
    at: ModuleId,
    /// The names that the functions around bind: a local variable may be called as a function
    /// elsewhere is.
    bound: Vec<BTreeSet<String>>,
    edges: &'a mut Edges,
}

impl Named<'_> {
    fn name(&mut self, path: &[String]) {
        if let [alone] = path
            && self.bound.iter().any(|names| names.contains(alone))
        {
            return;
        }
        for target in self.modules.resolve(self.at, path) {
            match target {
                Target::Item(file, item) if file != self.file => {
                    _ = self.edges.entry((self.file, file)).or_default().insert(item)
                }
                Target::Item(..) | Target::Module(_) => {}
            }
        }
    }

    /// A macro's words are not syntax yet: every `a::b::c` in them counts as a path, unless a dot
    /// makes it a field.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let is = |at: usize, sign: char| matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == sign);
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => {
                    let braces = group.delimiter() == Delimiter::Brace;
                    self.bound.push(if braces { lets(&group.stream()) } else { BTreeSet::new() });
                    self.tokens(group.stream());
                    self.bound.pop();
                }
                TokenTree::Ident(first) => {
                    let field = at > 0 && is(at - 1, '.') && !(at > 1 && is(at - 2, '.'));
                    let parameter = at > 0 && is(at - 1, '$') && first != "crate";
                    let mut path = vec![first.to_string()];
                    while is(at + 1, ':')
                        && is(at + 2, ':')
                        && let Some(TokenTree::Ident(next)) = tokens.get(at + 3)
                    {
                        path.push(next.to_string());
                        at += 3;
                    }
                    if !field && !parameter {
                        self.name(&path);
                    }
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
            at += 1;
        }
    }

    fn function(&mut self, visit: impl FnOnce(&mut Self), bound: BTreeSet<String>) {
        self.bound.push(bound);
        visit(self);
        self.bound.pop();
    }
}

/// What `let` binds in a macro's block.
fn lets(tokens: &TokenStream) -> BTreeSet<String> {
    let words: Vec<String> = tokens.clone().into_iter().map(|token| token.to_string()).collect();
    words.windows(2).filter(|pair| pair[0] == "let").map(|pair| pair[1].clone()).collect()
}

/// The variables that patterns bind. What begins with a capital is a constant or a variant.
#[derive(Default)]
struct Bound(BTreeSet<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if !is_constant(&pattern.ident) {
            self.0.insert(pattern.ident.to_string());
        }
        visit::visit_pat_ident(self, pattern);
    }
}

fn is_constant(ident: &syn::Ident) -> bool {
    ident.to_string().starts_with(char::is_uppercase)
}

impl<'ast> Visit<'ast> for Named<'_> {
    fn visit_file(&mut self, file: &'ast syn::File) {
        if !modules::for_tests(&file.attrs) {
            visit::visit_file(self, file);
        }
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !modules::for_tests(modules::attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else { return };
        let outer = self.at;
        self.at = self.modules.within(outer, &item.ident.to_string()).expect("declared");
        items.iter().for_each(|item| self.visit_item(item));
        self.at = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            modules::imports(item)
                .iter()
                .filter(|import| !import.glob)
                .for_each(|import| self.name(&import.path));
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[syn::Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => &[],
        };
        if !modules::for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let mut bound = Bound::default();
        bound.visit_item_fn(item);
        self.function(|inner| visit::visit_item_fn(inner, item), bound.0);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        let mut bound = Bound::default();
        bound.visit_impl_item_fn(item);
        self.function(|inner| visit::visit_impl_item_fn(inner, item), bound.0);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        let mut bound = Bound::default();
        bound.visit_trait_item_fn(item);
        self.function(|inner| visit::visit_trait_item_fn(inner, item), bound.0);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.name(
                &path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>(),
            );
        }
        visit::visit_path(self, path);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        if is_constant(&pattern.ident) {
            self.name(&[pattern.ident.to_string()]);
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        match &attribute.meta {
            syn::Meta::List(list) => {
                self.tokens(list.tokens.clone());
                if list.path.is_ident("serde") {
                    self.quoted(list.tokens.clone());
                }
            }
            syn::Meta::Path(_) | syn::Meta::NameValue(_) => {}
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}

impl Named<'_> {
    /// The paths that serde takes as strings: `#[serde(with = "super::nanos")]`, a module or a
    /// function.
    fn quoted(&mut self, tokens: TokenStream) {
        let literals = tokens.into_iter().filter_map(|token| match token {
            TokenTree::Literal(literal) => syn::parse_str::<syn::LitStr>(&literal.to_string()).ok(),
            _ => None,
        });
        for path in literals.filter_map(|literal| literal.parse::<syn::Path>().ok()) {
            let path: Vec<String> =
                path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.name(&path);
            self.name(&[path.as_slice(), &["serialize".into()]].concat());
            self.name(&[path.as_slice(), &["deserialize".into()]].concat());
        }
    }
}
