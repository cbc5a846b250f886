//! Limits of registers: comments in a kernel's body become directives in its head.
//!
//! rustc has no attribute for `.maxnreg`. `#[kernel(registers = N)]` leaves the comment `// cuda_std: maxnreg N` in the
//! kernel's PTX instead.

/// What stands before the number in the comment.
const MARK: &str = "// cuda_std: maxnreg ";

/// The PTX with a `.maxnreg` for every kernel that has the comment.
pub(crate) fn apply(ptx: &str) -> String {
    let mut out = String::with_capacity(ptx.len());
    let mut rest = ptx;
    // An entry's head ends with the first line that is a lone brace.
    while let Some(body) = rest.find(".entry").and_then(|at| Some(at + rest[at..].find("\n{\n")?)) {
        let end = rest[body..].find("\n}").map_or(rest.len(), |end| body + end);
        out.push_str(&rest[..body]);
        if let Some(limit) = limit_in(&rest[body..end]) {
            out.push_str("\n.maxnreg ");
            out.push_str(limit);
        }
        out.push_str(&rest[body..end]);
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// The number in a body's comment.
fn limit_in(body: &str) -> Option<&str> {
    let number = &body[body.find(MARK)? + MARK.len()..];
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    Some(&number[..end]).filter(|digits| !digits.is_empty())
}

#[cfg(test)]
mod tests {
    use super::apply;

    const PTX: &str = ".visible .entry a(\n.param .u64 p\n)\n{\n\tret;\n}\n.visible .entry b(\n\n)\n{\n\t// begin inline asm\n\t// cuda_std: maxnreg 40\n\t// end inline asm\n\tret;\n}\n.func c()\n{\n}\n";

    #[test]
    fn only_the_kernel_with_the_comment_gets_the_directive() {
        let with = apply(PTX);
        assert_eq!(with.replace("\n.maxnreg 40", ""), PTX);
        assert!(with.contains(".entry b(\n\n)\n.maxnreg 40\n{"), "{with}");
    }

    #[test]
    fn text_without_kernels_stays() {
        for text in ["", ".version 7.8\n", ".entry cut off"] {
            assert_eq!(apply(text), text);
        }
    }
}
