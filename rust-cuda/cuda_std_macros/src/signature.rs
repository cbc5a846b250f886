//! What the attribute reads from a kernel's signature, and the mistakes it refuses.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, FnArg, Ident, ItemFn, Lit, LitInt, Meta, Pat, ReturnType, Token, Type, Visibility};

/// One parameter of a kernel.
pub struct Parameter {
    pub name: Ident,
    pub ty: Type,
    /// What a pointer points to.
    pub pointee: Option<Type>,
}

/// A kernel's signature, checked.
pub struct Signature {
    pub parameters: Vec<Parameter>,
    /// The first paragraph of its documentation, in one line.
    pub doc: String,
    /// It waits for the launch before it.
    pub pdl: bool,
    /// Registers that a thread may use at most.
    pub registers: Option<LitInt>,
}

impl Signature {
    /// Reads and checks `function`; `attribute` is what stands in the parentheses of `#[kernel(…)]`.
    pub fn read(attribute: TokenStream, function: &ItemFn) -> Result<Self, Error> {
        check(function)?;
        let parameters = function.sig.inputs.iter().map(parameter).collect::<Result<_, _>>()?;
        let declared: Declared = syn::parse2(attribute)?;
        let pdl = declared.pdl || waits(function.block.to_token_stream());
        Ok(Self {
            parameters,
            doc: first_paragraph(function),
            pdl,
            registers: declared.registers,
        })
    }
}

fn check(function: &ItemFn) -> Result<(), Error> {
    let sig = &function.sig;
    if sig.unsafety.is_none() {
        return Err(Error::new_spanned(
            &sig.ident,
            "a kernel takes raw pointers: declare it `unsafe fn`",
        ));
    }
    if !matches!(function.vis, Visibility::Public(_)) {
        return Err(Error::new_spanned(
            &sig.ident,
            "a kernel is an entry of the PTX module: declare it `pub`",
        ));
    }
    if !sig.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &sig.generics,
            "a kernel has no generics: write a generic body and a kernel for each instance",
        ));
    }
    if let ReturnType::Type(..) = sig.output {
        return Err(Error::new_spanned(
            &sig.output,
            "a kernel returns nothing: write to an output pointer",
        ));
    }
    Ok(())
}

fn parameter(input: &FnArg) -> Result<Parameter, Error> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "a kernel has no receiver"));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new_spanned(&typed.pat, "a kernel's parameter is a plain name"));
    };
    let pointee = match &*typed.ty {
        Type::Ptr(pointer) => Some((*pointer.elem).clone()),
        Type::Reference(_) => {
            return Err(Error::new_spanned(
                &typed.ty,
                "a kernel takes raw pointers, not references",
            ));
        }
        _ => None,
    };
    Ok(Parameter {
        name: pattern.ident.clone(),
        ty: (*typed.ty).clone(),
        pointee,
    })
}

/// What stands in the parentheses of `#[kernel(…)]`.
#[derive(Default)]
struct Declared {
    pdl: bool,
    registers: Option<LitInt>,
}

impl Parse for Declared {
    fn parse(input: ParseStream) -> Result<Self, Error> {
        let mut declared = Self::default();
        while !input.is_empty() {
            let word: Ident = input.parse()?;
            if word == "pdl" {
                declared.pdl = true;
            } else if word == "registers" {
                input.parse::<Token![=]>()?;
                declared.registers = Some(register_limit(input.parse()?)?);
            } else {
                return Err(Error::new_spanned(word, "expected `pdl` or `registers = …`"));
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(declared)
    }
}

/// A limit that the assembler takes.
fn register_limit(limit: LitInt) -> Result<LitInt, Error> {
    match limit.base10_parse::<u32>()? {
        16..=255 => Ok(limit),
        _ => Err(Error::new_spanned(limit, "a thread has 16 to 255 registers")),
    }
}

/// Whether the tokens contain a call of `pdl::wait`.
fn waits(tokens: TokenStream) -> bool {
    let flat = flatten(tokens);
    flat.windows(4)
        .any(|w| w[0] == "pdl" && w[1] == ":" && w[2] == ":" && w[3] == "wait")
}

fn flatten(tokens: TokenStream) -> Vec<String> {
    tokens
        .into_iter()
        .flat_map(|tree| match tree {
            TokenTree::Group(group) => flatten(group.stream()),
            other => vec![other.to_string()],
        })
        .collect()
}

fn first_paragraph(function: &ItemFn) -> String {
    let lines = function.attrs.iter().filter_map(doc_line);
    let paragraph = lines
        .map(|line| line.trim().to_owned())
        .take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}

fn doc_line(attribute: &syn::Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let Expr::Lit(value) = &pair.value else {
        return None;
    };
    let Lit::Str(text) = &value.lit else {
        return None;
    };
    pair.path.is_ident("doc").then(|| text.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use syn::parse_quote;

    #[test]
    fn a_wait_in_the_body_is_found_at_any_depth() {
        let with: ItemFn = parse_quote! { pub unsafe fn k(n: u32) { if n > 0 { loop { cuda_std::pdl::wait(); } } } };
        let without: ItemFn = parse_quote! { pub unsafe fn k(n: u32) { pdl::launch_dependents(); } };
        assert!(Signature::read(TokenStream::new(), &with).unwrap().pdl);
        assert!(!Signature::read(TokenStream::new(), &without).unwrap().pdl);
        assert!(Signature::read(parse_quote!(pdl), &without).unwrap().pdl);
    }

    #[test]
    fn a_limit_of_registers_is_a_number_that_a_thread_can_have() {
        let kernel: ItemFn = parse_quote! { pub unsafe fn k() {} };
        let signature = Signature::read(parse_quote!(pdl, registers = 40), &kernel).unwrap();
        assert!(signature.pdl && signature.registers.unwrap().base10_digits() == "40");
        for (wrong, words) in [
            (quote::quote!(registers = 8), "16 to 255"),
            (quote::quote!(register = 40), "expected `pdl` or `registers"),
            (quote::quote!(registers), "expected `=`"),
        ] {
            let error = Signature::read(wrong, &kernel).err().expect("refused");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn the_documentation_is_its_first_paragraph() {
        let function: ItemFn = parse_quote! {
            /// Adds two
            /// vectors.
            ///
            /// More.
            pub unsafe fn k() {}
        };
        assert_eq!(
            Signature::read(TokenStream::new(), &function).unwrap().doc,
            "Adds two vectors."
        );
    }

    #[test]
    fn mistakes_are_refused_in_words() {
        let cases: [(ItemFn, &str); 5] = [
            (parse_quote! { pub fn k() {} }, "unsafe fn"),
            (parse_quote! { unsafe fn k() {} }, "declare it `pub`"),
            (parse_quote! { pub unsafe fn k<T>() {} }, "no generics"),
            (parse_quote! { pub unsafe fn k() -> u32 { 0 } }, "returns nothing"),
            (parse_quote! { pub unsafe fn k(a: &f32) {} }, "not references"),
        ];
        for (function, words) in cases {
            let error = Signature::read(TokenStream::new(), &function).err().expect("refused");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
