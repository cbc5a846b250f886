//! The `#[kernel]` attribute of `cuda_std`.
//!
//! From one function it makes two things. On `nvptx64` an exported PTX entry. On the host the
//! function itself (the emulator calls it) and a module of the same name with what a launch needs:
//! `INFO`, `prepare` and `launch`, typed by the kernel's own parameters.

mod host;
mod signature;

use proc_macro::TokenStream;
use quote::quote;
use signature::Signature;
use syn::{ItemFn, parse_macro_input};

/// Makes a function a GPU kernel.
///
/// ```ignore
/// /// Adds two vectors.
/// #[kernel]
/// pub unsafe fn add(a: *const f32, b: *const f32, n: u32, out: *mut f32) {}
/// ```
///
/// The function must be `pub unsafe`, without generics and without a result. Parameters are raw
/// pointers (a launch passes `DevicePtr<T>` for them) or values that implement
/// `bytemuck::NoUninit`: scalars and `#[repr(C)]` structs without padding.
///
/// `#[kernel(pdl)]` says that every thread waits for the launch before it (`pdl::wait()`)
/// somewhere in the functions it calls; where the kernel's own body calls it, that is found without help.
///
/// `#[kernel(registers = 40)]` limits the registers of a thread, so that more blocks share a multiprocessor.
#[proc_macro_attribute]
pub fn kernel(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    match Signature::read(attribute.into(), &function) {
        Ok(signature) => {
            let device = device_entry(&function, &signature);
            let host = host::launch_module(&function, &signature);
            quote! { #device #host }.into()
        }
        Err(error) => error.to_compile_error().into(),
    }
}

/// The function twice: as a PTX entry for the device, as it stands for the host.
fn device_entry(function: &ItemFn, signature: &Signature) -> proc_macro2::TokenStream {
    let ItemFn { attrs, vis, sig, block } = function;
    let limit = signature.registers.as_ref().map(register_limit);
    let mut entry = sig.clone();
    entry.abi = Some(syn::parse_quote!(extern "ptx-kernel"));
    quote! {
        #[cfg(target_arch = "nvptx64")]
        #(#attrs)*
        #[allow(clippy::missing_safety_doc)]
        #[unsafe(no_mangle)]
        #vis #entry {
            #limit
            #block
        }

        #[cfg(not(target_arch = "nvptx64"))]
        #(#attrs)*
        #[allow(clippy::missing_safety_doc, clippy::too_many_arguments)]
        #vis #sig #block
    }
}

/// The mark of a limit in the kernel's PTX, at the start of its body.
fn register_limit(limit: &syn::LitInt) -> proc_macro2::TokenStream {
    quote! { ::cuda_std::thread::limit_registers::<#limit>(); }
}
