//! The Python literal in a `.npy` header: a dict of strings, booleans, tuples of integers, and lists for structured
//! types. A recursive-descent parser with a depth limit; anything else is refused.

use std::fmt;

/// A Python literal of the kinds that numpy writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    /// `'text'`.
    Text(String),
    /// `True`.
    Bool(bool),
    /// `12` or Python 2's `12L`.
    Int(u64),
    /// `None`.
    None,
    /// `(1, 2)`.
    Tuple(Vec<Literal>),
    /// `[1, 2]`.
    List(Vec<Literal>),
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence = |f: &mut fmt::Formatter<'_>, open: &str, items: &[Literal], close: &str| {
            f.write_str(open)?;
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    f.write_str(", ")?;
                }
                write!(f, "{item}")?;
            }
            f.write_str(close)
        };
        match self {
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(n) => write!(f, "{n}"),
            Self::None => f.write_str("None"),
            Self::Tuple(items) => sequence(f, "(", items, ")"),
            Self::List(items) => sequence(f, "[", items, "]"),
        }
    }
}

/// Nesting of lists and tuples. Structured types nest; 16 is more than they need.
const DEPTH_MAX: usize = 16;

/// The entries of the dict in `text`, in order. The error says what was expected at which byte.
pub(super) fn parse(text: &str) -> Result<Vec<(String, Literal)>, String> {
    let mut parser = Parser { text, at: 0 };
    parser.expect('{')?;
    let mut entries = Vec::new();
    while !parser.eat('}') {
        let Literal::Text(key) = parser.literal(0)? else { return Err(parser.wrong("a key in quotes")) };
        parser.expect(':')?;
        entries.push((key, parser.literal(0)?));
        if !parser.eat(',') {
            parser.expect('}')?;
            break;
        }
    }
    parser.skip_space();
    if parser.at < text.len() {
        return Err(parser.wrong("the end"));
    }
    Ok(entries)
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn wrong(&self, expected: &str) -> String {
        format!("expected {expected} at byte {} of the dict", self.at)
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn eat(&mut self, c: char) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) { Ok(()) } else { Err(self.wrong(&format!("`{c}`"))) }
    }

    fn literal(&mut self, depth: usize) -> Result<Literal, String> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("less nesting"));
        }
        self.skip_space();
        match self.rest().bytes().next() {
            Some(quote @ (b'\'' | b'"')) => self.text(char::from(quote)),
            Some(b'(') => self.tuple(depth),
            Some(b'[') => {
                self.expect('[')?;
                Ok(Literal::List(self.items(']', depth)?.0))
            }
            Some(b'0'..=b'9') => self.integer(),
            Some(_) => self.word(),
            None => Err(self.wrong("a value")),
        }
    }

    /// A string without escapes: numpy's type strings and field names in ASCII have none.
    fn text(&mut self, quote: char) -> Result<Literal, String> {
        self.expect(quote)?;
        let end = self.rest().find([quote, '\\', '\n']).filter(|&end| self.rest()[end..].starts_with(quote));
        let Some(end) = end else { return Err(self.wrong("a string without escapes")) };
        let text = self.rest()[..end].to_owned();
        self.at += end + quote.len_utf8();
        Ok(Literal::Text(text))
    }

    /// `(1, 2)`, `(1,)`, `()`; `(1)` is the value in brackets.
    fn tuple(&mut self, depth: usize) -> Result<Literal, String> {
        self.expect('(')?;
        let (mut items, trailing_comma) = self.items(')', depth)?;
        match items.pop() {
            Some(only) if items.is_empty() && !trailing_comma => Ok(only),
            Some(last) => {
                items.push(last);
                Ok(Literal::Tuple(items))
            }
            None => Ok(Literal::Tuple(items)),
        }
    }

    /// Items up to `close`, and whether a comma ended them.
    fn items(&mut self, close: char, depth: usize) -> Result<(Vec<Literal>, bool), String> {
        let mut items = Vec::new();
        let mut comma = false;
        while !self.eat(close) {
            items.push(self.literal(depth + 1)?);
            comma = self.eat(',');
            if !comma {
                self.expect(close)?;
                break;
            }
        }
        Ok((items, comma))
    }

    fn integer(&mut self) -> Result<Literal, String> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let n = self.rest()[..digits].parse().map_err(|_| self.wrong("an integer below 2^64"))?;
        self.at += digits;
        if self.rest().starts_with('L') {
            self.at += 1;
        }
        Ok(Literal::Int(n))
    }

    fn word(&mut self) -> Result<Literal, String> {
        let words = [("True", Literal::Bool(true)), ("False", Literal::Bool(false)), ("None", Literal::None)];
        for (word, literal) in words {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(literal);
            }
        }
        Err(self.wrong("a value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_numpy_writes_is_read() {
        let entries = parse("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4L), }     \n").unwrap();
        let expected = [
            ("descr".to_owned(), Literal::Text("<f8".into())),
            ("fortran_order".to_owned(), Literal::Bool(false)),
            ("shape".to_owned(), Literal::Tuple(vec![Literal::Int(3), Literal::Int(4)])),
        ];
        assert_eq!(entries, expected);
        assert_eq!(parse("{'shape': ()}").unwrap()[0].1, Literal::Tuple(vec![]));
        assert_eq!(parse("{'shape': (5,)}").unwrap()[0].1, Literal::Tuple(vec![Literal::Int(5)]));
        assert_eq!(parse("{'shape': (5)}").unwrap()[0].1, Literal::Int(5));
        assert_eq!(
            parse("{'d': [('x', '<f4'), ('y', '<f4', (2,))]}").unwrap()[0].1.to_string(),
            "[('x', '<f4'), ('y', '<f4', (2))]"
        );
    }

    #[test]
    fn anything_else_is_refused() {
        let deep = format!("{{'a': {}", "[".repeat(10_000));
        for text in [
            "",
            "{",
            "{'a'",
            "{'a': }",
            "{'a': 1} x",
            "{'a': 1 'b': 2}",
            "{'a': f()}",
            "{'a': -1}",
            "{'a': 'x\\'y'}",
            "{'a': 99999999999999999999}",
            "{1: 2}",
            "{'a': (1, }",
            &deep,
        ] {
            assert!(parse(text).is_err(), "{}", &text[..text.len().min(40)]);
        }
    }
}
