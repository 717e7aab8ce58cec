//! Divides a command line into words, as a POSIX shell does, without expansions.

/// The words, or what is wrong.
pub(super) fn split_words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '\'' => loop {
                let word = word.get_or_insert_default();
                match rest.next() {
                    Some('\'') => break,
                    Some(letter) => word.push(letter),
                    None => return Err("a quotation mark is not closed"),
                }
            },
            '"' => double_quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => match rest.next() {
                Some(letter) => word.get_or_insert_default().push(letter),
                None => return Err("it ends in a backslash"),
            },
            space if space.is_whitespace() => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

fn double_quoted(
    rest: &mut impl Iterator<Item = char>,
    word: &mut String,
) -> Result<(), &'static str> {
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some('\\') => match rest.next() {
                Some(letter @ ('"' | '\\' | '$' | '`')) => word.push(letter),
                Some(letter) => word.extend(['\\', letter]),
                None => break,
            },
            Some(letter) => word.push(letter),
            None => break,
        }
    }
    Err("a quotation mark is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_join_words() {
        for (line, words) in [
            ("", vec![]),
            ("  a\tb ", vec!["a", "b"]),
            (
                "a 'b c' \"d \\\"e\\n\"f ''",
                vec!["a", "b c", "d \"e\\nf", ""],
            ),
            ("a\\ b $c", vec!["a b", "$c"]),
        ] {
            assert_eq!(split_words(line).unwrap(), words, "{line}");
        }
        for line in ["'a", "\"a", "\"a\\", "a\\"] {
            assert!(split_words(line).is_err(), "{line}");
        }
    }
}
