//! Tokens as people read them.

use super::Tokenizer;

/// Ids on one line, separated by spaces.
pub fn ids_line(ids: &[u32]) -> String {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    ids.join(" ")
}

/// One line per token: its id, and in quotes what it stands for. Bytes that are no characters on their own are written
/// `\xNN`.
pub fn lines(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut out = String::new();
    for &id in ids {
        let piece = tokenizer.piece(id, true);
        out.push_str(&format!("{id:>7} '{}'\n", escape(&piece)));
    }
    out
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.extend(chunk.valid().escape_debug());
        let invalid = chunk.invalid().iter();
        out.extend(invalid.map(|byte| format!("\\x{byte:02X}")));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_out() {
        assert_eq!(escape(b"a\n'\xC3\xC3\xA9"), "a\\n\\'\\xC3é");
        assert_eq!(ids_line(&[1, 20, 3]), "1 20 3");
        assert_eq!(ids_line(&[]), "");
    }
}
