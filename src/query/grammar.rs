//! The selection grammar.
//!
//! ```text
//! slice  = dim *("," dim)
//! dim    = "..." / int / [bound] ":" [bound] [":" [int]] / list
//! bound  = int / "~"
//! list   = "(" [int *("," int)] ")" / "[" [int *("," int)] "]"
//! ```

use super::{Bound, Dim, QueryError};

/// Parses the value of `slice`. An empty value means everything.
///
/// # Errors
/// [`QueryError::Grammar`] with the byte offset; [`QueryError::Ambiguous`] for a lone `[1,3]`.
pub(super) fn parse_slice(text: &str) -> Result<Vec<Dim>, QueryError> {
    let mut cursor = Cursor { parameter: "slice", text, at: 0, end: text.len() };
    cursor.skip_spaces();
    cursor.trim_end();
    if cursor.at == cursor.end {
        return Ok(Vec::new());
    }
    if cursor.wrapped_in_brackets() {
        let inner = &text[cursor.at + 1..cursor.end - 1];
        if !(inner.contains(':') || inner.contains("...") || inner.contains(['(', '['])) {
            let list = inner.trim();
            return Err(QueryError::Ambiguous {
                parameter: "slice",
                text: text.to_owned(),
                first: if list.is_empty() { "...".to_owned() } else { list.to_owned() },
                second: format!("({list})"),
            });
        }
        cursor.at += 1;
        cursor.end -= 1;
    }
    let dims = cursor.dims()?;
    if dims.iter().filter(|dim| matches!(dim, Dim::Ellipsis)).count() > 1 {
        let second = text.find("...").and_then(|first| text[first + 3..].find("...").map(|i| first + 3 + i));
        return Err(cursor.error_at(second.unwrap_or(0), "a second `...`"));
    }
    Ok(dims)
}

/// Parses the dimension of one `isel=name=dim`.
///
/// # Errors
/// [`QueryError::Grammar`]; an ellipsis is one too.
pub(super) fn parse_dim(text: &str) -> Result<Dim, QueryError> {
    let mut cursor = Cursor { parameter: "isel", text, at: 0, end: text.len() };
    let dim = cursor.dim()?;
    cursor.skip_spaces();
    if cursor.at != cursor.end {
        return Err(cursor.error("unexpected text after the dimension"));
    }
    if matches!(dim, Dim::Ellipsis) {
        return Err(cursor.error_at(0, "`...` cannot be given to one dimension"));
    }
    Ok(dim)
}

struct Cursor<'a> {
    parameter: &'static str,
    text: &'a str,
    at: usize,
    end: usize,
}

impl Cursor<'_> {
    fn error_at(&self, position: usize, reason: &str) -> QueryError {
        QueryError::Grammar { parameter: self.parameter, reason: reason.to_owned(), position }
    }

    fn error(&self, reason: &str) -> QueryError {
        self.error_at(self.at, reason)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..self.end]
    }

    fn peek(&self) -> Option<u8> {
        self.rest().bytes().next()
    }

    fn skip_spaces(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches(' ').len();
    }

    fn trim_end(&mut self) {
        self.end = self.at + self.rest().trim_end_matches(' ').len();
    }

    /// Whether the bracket at the start closes at the very end.
    fn wrapped_in_brackets(&self) -> bool {
        if self.peek() != Some(b'[') {
            return false;
        }
        let mut depth = 0_usize;
        for (i, b) in self.rest().bytes().enumerate() {
            match b {
                b'[' => depth += 1,
                b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return i + 1 == self.rest().len();
                    }
                }
                _ => {}
            }
        }
        false
    }

    fn dims(&mut self) -> Result<Vec<Dim>, QueryError> {
        let mut dims = Vec::new();
        loop {
            dims.push(self.dim()?);
            self.skip_spaces();
            match self.peek() {
                None => return Ok(dims),
                Some(b',') => self.at += 1,
                Some(_) => return Err(self.error("expected `,` or the end")),
            }
        }
    }

    fn dim(&mut self) -> Result<Dim, QueryError> {
        self.skip_spaces();
        let rest = self.rest();
        if rest.starts_with("...") {
            self.at += 3;
            return Ok(Dim::Ellipsis);
        }
        for name in ["None", "newaxis", "np.newaxis", "null"] {
            if rest.starts_with(name) {
                return Err(self.error("new axes cannot be made; reshape the answer instead"));
            }
        }
        match self.peek() {
            Some(b'(') => self.list(b')'),
            Some(b'[') => self.list(b']'),
            Some(_) | None => self.index_or_range(),
        }
    }

    fn list(&mut self, close: u8) -> Result<Dim, QueryError> {
        self.at += 1;
        let mut list = Vec::new();
        self.skip_spaces();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(Dim::List(list));
        }
        loop {
            self.skip_spaces();
            list.push(self.int()?.ok_or_else(|| self.error("expected an integer in the list"))?);
            self.skip_spaces();
            match self.peek() {
                Some(b) if b == close => {
                    self.at += 1;
                    return Ok(Dim::List(list));
                }
                Some(b',') => self.at += 1,
                Some(_) => return Err(self.error("expected `,` or the end of the list")),
                None => return Err(self.error("the list is not closed")),
            }
        }
    }

    fn index_or_range(&mut self) -> Result<Dim, QueryError> {
        let from = self.at;
        let (start, start_omitted) = self.bound()?;
        self.skip_spaces();
        if self.peek() != Some(b':') {
            return match start {
                Some(index) => Ok(Dim::Index(index)),
                None if start_omitted => Err(self.error_at(from, "`~` is a bound and needs a `:`")),
                None => Err(self.error("expected an integer, a range, a list or `...`")),
            };
        }
        self.at += 1;
        self.skip_spaces();
        let (stop, _) = self.bound()?;
        self.skip_spaces();
        let mut step = 1;
        if self.peek() == Some(b':') {
            self.at += 1;
            self.skip_spaces();
            let at = self.at;
            if let Some(given) = self.int()? {
                if given == 0 {
                    return Err(self.error_at(at, "a step of 0"));
                }
                step = given;
            }
        }
        Ok(Dim::Range { start, stop, step })
    }

    /// A bound, and whether it was spelled `~`.
    fn bound(&mut self) -> Result<(Bound, bool), QueryError> {
        if self.peek() == Some(b'~') {
            self.at += 1;
            return Ok((None, true));
        }
        Ok((self.int()?, false))
    }

    fn int(&mut self) -> Result<Option<i64>, QueryError> {
        let rest = self.rest();
        let digits_from = usize::from(rest.starts_with('-'));
        let digits = rest[digits_from..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            if digits_from == 1 {
                return Err(self.error("expected digits after `-`"));
            }
            return Ok(None);
        }
        let len = digits_from + digits;
        let value = rest[..len].parse().map_err(|_| self.error("an integer beyond 64 bits"))?;
        self.at += len;
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn range(start: Bound, stop: Bound, step: i64) -> Dim {
        Dim::Range { start, stop, step }
    }

    fn check(text: &str, expected: &[Dim]) {
        assert_eq!(parse_slice(text).as_deref(), Ok(expected), "{text}");
    }

    #[test]
    fn every_form_of_the_grammar() {
        check("", &[]);
        check("  ", &[]);
        check("0:4", &[range(Some(0), Some(4), 1)]);
        check("::", &[Dim::ALL]);
        check("~:~", &[Dim::ALL]);
        check("~:5:-2", &[range(None, Some(5), -2)]);
        check("-3:", &[range(Some(-3), None, 1)]);
        check(" 1 , ... , -1 ", &[Dim::Index(1), Dim::Ellipsis, Dim::Index(-1)]);
        check("(1,3,3),[0]", &[Dim::List(vec![1, 3, 3]), Dim::List(vec![0])]);
        check("()", &[Dim::List(vec![])]);
    }

    #[test]
    fn an_outer_pair_is_taken_off_only_when_it_cannot_be_a_list() {
        check("[0:4,:]", &[range(Some(0), Some(4), 1), Dim::ALL]);
        check("[...]", &[Dim::Ellipsis]);
        check("[[1,3]]", &[Dim::List(vec![1, 3])]);
        check("[0,(1,3)]", &[Dim::Index(0), Dim::List(vec![1, 3])]);
        check("[1,3],0", &[Dim::List(vec![1, 3]), Dim::Index(0)]);
        let QueryError::Ambiguous { first, second, .. } = parse_slice("[1,3]").unwrap_err() else {
            panic!("`[1,3]` alone has two readings");
        };
        assert_eq!((first.as_str(), second.as_str()), ("1,3", "(1,3)"));
    }

    fn refuses(text: &str, position: usize) {
        match parse_slice(text) {
            Err(QueryError::Grammar { position: at, .. }) => assert_eq!(at, position, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn errors_point_at_the_place() {
        refuses("0:4,", 4);
        refuses("0:4:0", 4);
        refuses("...,...", 4);
        refuses("1.5", 1);
        refuses("(1,2", 4);
        refuses("0,None", 2);
        refuses("~", 0);
        refuses("99999999999999999999", 0);
        refuses("-", 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[-0-9:~,.() \\[\\]a-z]{0,40}") {
            let _ = parse_slice(&text);
            let _ = parse_dim(&text);
        }
    }
}
