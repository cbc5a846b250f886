//! The host's side of a kernel: its description and its typed launch.

use crate::signature::{Parameter, Signature};
use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::ItemFn;

/// The module of the kernel's name: `INFO`, `prepare`, `launch`.
pub fn launch_module(function: &ItemFn, signature: &Signature) -> TokenStream {
    let name = &function.sig.ident;
    let text = name.to_string();
    let (doc, pdl) = (&signature.doc, signature.pdl);
    let described = signature.parameters.iter().map(description);
    let typed: Vec<_> = signature.parameters.iter().map(typed_argument).collect();
    let names: Vec<_> = signature.parameters.iter().map(|p| &p.name).collect();
    let read = signature
        .parameters
        .iter()
        .enumerate()
        .map(|(i, p)| read_argument(i, p));
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = concat!("Launches of [`", #text, "`](fn@", #text, ").")]
        #[allow(clippy::too_many_arguments)]
        pub mod #name {
            #[allow(unused_imports)]
            use super::*;
            use ::cuda_std::launch as __launch;

            /// What the kernel is, takes and needs.
            pub static INFO: __launch::KernelInfo = __launch::KernelInfo {
                name: #text,
                file: file!(),
                doc: #doc,
                pdl: #pdl,
                params: &[#(#described),*],
                emulate: __emulate,
            };

            /// One launch with these arguments, as data.
            #[must_use]
            pub fn prepare(config: __launch::LaunchConfig, #(#typed),*) -> __launch::PreparedLaunch {
                let mut arguments = __launch::Arguments::new();
                #(arguments.push(#names);)*
                __launch::PreparedLaunch::new(&INFO, config, arguments)
            }

            /// Launches the kernel.
            ///
            /// # Errors
            /// The launcher's own, and a configuration that the kernel does not allow.
            pub fn launch<L: __launch::Launcher>(
                launcher: &L,
                config: __launch::LaunchConfig,
                #(#typed),*
            ) -> Result<(), L::Error> {
                launcher.launch(&prepare(config, #(#names),*))
            }

            unsafe fn __emulate(__arguments: *const *const ::core::ffi::c_void) {
                // SAFETY: the caller passes one pointer for each parameter of the description,
                // to a value of its type; the kernel's own contract is the launch's.
                unsafe { super::#name(#(#read),*) }
            }
        }
    }
}

fn description(parameter: &Parameter) -> TokenStream {
    let name = parameter.name.to_string();
    let type_name = spelled(&parameter.ty);
    let ty = launch_type(parameter);
    quote! { __launch::Param {
        name: #name,
        type_name: #type_name,
        size: ::core::mem::size_of::<#ty>(),
        align: ::core::mem::align_of::<#ty>(),
    } }
}

/// A type as its source spells it, without the spaces that tokens print with.
fn spelled(ty: &syn::Type) -> String {
    let text = ty.to_token_stream().to_string();
    text.replace("* ", "*")
        .replace(" :: ", "::")
        .replace(" < ", "<")
        .replace(" >", ">")
        .replace(" ;", ";")
}

fn launch_type(parameter: &Parameter) -> TokenStream {
    match &parameter.pointee {
        Some(pointee) => quote!(__launch::DevicePtr<#pointee>),
        None => parameter.ty.to_token_stream(),
    }
}

fn typed_argument(parameter: &Parameter) -> TokenStream {
    let (name, ty) = (&parameter.name, launch_type(parameter));
    quote!(#name: #ty)
}

fn read_argument(index: usize, parameter: &Parameter) -> TokenStream {
    let (index, ty) = (Literal::usize_unsuffixed(index), &parameter.ty);
    quote!(*(*__arguments.add(#index)).cast::<#ty>())
}
