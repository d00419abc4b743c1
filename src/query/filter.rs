//! Predicates: a part of CQL2 text (OGC 21-065r2), parsed into a tree.
//!
//! ```text
//! or        = and *("OR" and)
//! and       = not *("AND" not)
//! not       = *"NOT" (comparison / spatial / temporal / boolean / "(" or ")")
//! comparison = operand ("=" / "<>" / "<" / ">" / "<=" / ">=") operand     ; one property, one literal
//!            / property ["NOT"] "BETWEEN" literal "AND" literal
//!            / property ["NOT"] "IN" "(" literal *("," literal) ")"
//!            / property "IS" ["NOT"] "NULL"
//! spatial   = "S_INTERSECTS" "(" property "," "BBOX" "(" 4 or 6 numbers ")" ")"
//! temporal  = "T_DURING" "(" property "," "INTERVAL" "(" instant "," instant ")" ")"
//! literal   = number / "'" text "'" / "TRUE" / "FALSE" / ("DATE" / "TIMESTAMP") "(" "'" text "'" ")"
//! ```
//!
//! What CQL2 has beside these is told by its name ([`QueryError::Unsupported`]). Keywords in any case; names in double
//! quotes may hold anything.

use num_traits::ToPrimitive as _;
use serde_json::{Value, json};

use super::QueryError;
use crate::model::exact::{Exact, decimal, decimal_len, text};
use crate::model::instant::instant;

/// Longest text of a predicate.
pub const FILTER_BYTES: usize = 8 << 10;

/// Parentheses, `NOT` and `-` within each other.
const NESTING: usize = 64;

/// A predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All of them.
    And(Vec<Filter>),
    /// One of them.
    Or(Vec<Filter>),
    /// Not that.
    Not(Box<Filter>),
    /// What it says.
    Constant(bool),
    /// Something about one property.
    Test {
        /// The property's name.
        property: String,
        /// What is asked of it.
        test: Test,
    },
}

/// What is asked of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// How it compares.
    Compare(Comparison, Literal),
    /// That it lies between, ends included.
    Between(Literal, Literal),
    /// That it is one of these.
    In(Vec<Literal>),
    /// That it is not known.
    IsNull,
    /// That its place lies in a box, ends included: x, y[, z] of one corner, then of the other.
    Intersects(Vec<Exact>),
    /// That it lies within an interval, ends excluded; `None` for an open end.
    During(Option<Literal>, Option<Literal>),
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    Greater,
    AtMost,
    AtLeast,
}

impl Comparison {
    /// As CQL2 writes it.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::Greater => ">",
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }

    /// With its sides changed.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::Greater => Self::Less,
            Self::AtMost => Self::AtLeast,
            Self::AtLeast => Self::AtMost,
            Self::Equal | Self::NotEqual => self,
        }
    }

    /// Whether it holds for an order.
    pub fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::Greater => order.is_gt(),
            Self::AtMost => order.is_le(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

/// A value of a predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// A number, exactly as written.
    Number(Exact),
    /// A text.
    Text(String),
    /// A truth value.
    Flag(bool),
    /// A point of time, in seconds since 1970-01-01T00:00Z, as it was written, and whether it is a date.
    Instant {
        /// Seconds.
        seconds: Exact,
        /// Its text.
        written: String,
        /// Whether `DATE` wrote it.
        date: bool,
    },
}

impl Filter {
    /// All of some parts; what is joined by AND within them counts for itself.
    pub fn all(parts: Vec<Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part {
            Self::And(parts) => parts,
            one => vec![one],
        });
        let mut flat: Vec<Self> = flat.collect();
        if flat.len() == 1 { flat.remove(0) } else { Self::And(flat) }
    }

    /// One of some parts; what is joined by OR within them counts for itself.
    pub fn any(parts: Vec<Self>) -> Self {
        let flat = parts.into_iter().flat_map(|part| match part {
            Self::Or(parts) => parts,
            one => vec![one],
        });
        let mut flat: Vec<Self> = flat.collect();
        if flat.len() == 1 { flat.remove(0) } else { Self::Or(flat) }
    }

    /// Parses a predicate.
    ///
    /// # Errors
    /// [`QueryError::Grammar`] with the byte offset; [`QueryError::Unsupported`] for what CQL2 has and this has not.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > FILTER_BYTES {
            return Err(fail(FILTER_BYTES, &format!("longer than {FILTER_BYTES} bytes")));
        }
        let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0, end: text.len() };
        let node = parser.expression()?;
        let filter = parser.boolean(node)?;
        match parser.peek() {
            None => Ok(filter),
            Some(_) => Err(parser.expected("AND, OR or the end")),
        }
    }

    /// The names of all properties, each once, in the order of the text.
    pub fn properties(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.each(&mut |property, _| {
            if !names.contains(&property) {
                names.push(property);
            }
        });
        names
    }

    fn each<'a>(&'a self, visit: &mut impl FnMut(&'a str, &'a Test)) {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(|part| part.each(visit)),
            Self::Not(part) => part.each(visit),
            Self::Constant(_) => {}
            Self::Test { property, test } => visit(property, test),
        }
    }

    /// As CQL2 JSON.
    pub fn to_json(&self) -> Value {
        let of =
            |op: &str, parts: &[Self]| json!({ "op": op, "args": parts.iter().map(Self::to_json).collect::<Vec<_>>() });
        match self {
            Self::And(parts) => of("and", parts),
            Self::Or(parts) => of("or", parts),
            Self::Not(part) => of("not", std::slice::from_ref(part)),
            Self::Constant(value) => json!(value),
            Self::Test { property, test } => {
                let property = json!({ "property": property });
                let list = |literals: &[Literal]| literals.iter().map(Literal::to_json).collect::<Vec<_>>();
                match test {
                    Test::Compare(comparison, literal) => {
                        json!({ "op": comparison.symbol(), "args": [property, literal.to_json()] })
                    }
                    Test::Between(lo, hi) => json!({ "op": "between", "args": [property, lo.to_json(), hi.to_json()] }),
                    Test::In(literals) => json!({ "op": "in", "args": [property, list(literals)] }),
                    Test::IsNull => json!({ "op": "isNull", "args": [property] }),
                    Test::Intersects(bbox) => {
                        let bbox: Vec<Value> = bbox.iter().map(number).collect();
                        json!({ "op": "s_intersects", "args": [property, { "bbox": bbox }] })
                    }
                    Test::During(lo, hi) => {
                        let end = |literal: &Option<Literal>| match literal {
                            Some(Literal::Instant { written, .. }) => json!(written),
                            _ => json!(".."),
                        };
                        json!({ "op": "t_during", "args": [property, { "interval": [end(lo), end(hi)] }] })
                    }
                }
            }
        }
    }
}

impl Literal {
    fn to_json(&self) -> Value {
        match self {
            Self::Number(value) => number(value),
            Self::Text(text) => json!(text),
            Self::Flag(flag) => json!(flag),
            Self::Instant { written, date: true, .. } => json!({ "date": written }),
            Self::Instant { written, date: false, .. } => json!({ "timestamp": written }),
        }
    }

    /// As errors name it.
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::Flag(_) => "TRUE or FALSE",
            Self::Instant { .. } => "a date or timestamp",
        }
    }
}

/// A number of JSON: the decimal itself, or the nearest double where that has more digits.
fn number(value: &Exact) -> Value {
    serde_json::from_str(&text(value)).unwrap_or_else(|_| json!(value.to_f64()))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name, and whether it stood in quotes: then it is no keyword.
    Name(String, bool),
    Number(Exact),
    Text(String),
    Symbol(&'static str),
}

/// Operators and punctuation; of two that fit the longer first.
const SYMBOLS: &[&str] = &["<>", "<=", ">=", "!=", "=", "<", ">", "(", ")", ",", "+", "-", "*", "/", "%", "^"];

fn fail(position: usize, reason: &str) -> QueryError {
    QueryError::Grammar { parameter: "filter", reason: reason.to_owned(), position }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, QueryError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let start = at;
        let token = match first {
            ' ' | '\t' | '\r' | '\n' => {
                at += 1;
                continue;
            }
            '\'' | '"' => {
                let (inner, len) = quoted(rest, first).ok_or_else(|| fail(at, "a quote that is not closed"))?;
                at += len;
                if first == '"' { Token::Name(inner, true) } else { Token::Text(inner) }
            }
            _ if first.is_alphabetic() || first == '_' => {
                let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':');
                let len = rest.find(|c| !inside(c)).unwrap_or(rest.len());
                at += len;
                Token::Name(rest[..len].to_owned(), false)
            }
            _ if first.is_ascii_digit() || first == '.' => {
                let len = decimal_len(rest);
                at += len;
                let value = decimal(&rest[..len]).ok_or_else(|| fail(start, "no number, or too long a one"))?;
                Token::Number(value)
            }
            _ => {
                let symbol = SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol));
                let symbol = symbol.ok_or_else(|| fail(at, &format!("unexpected `{first}`")))?;
                at += symbol.len();
                Token::Symbol(symbol)
            }
        };
        tokens.push((start, token));
    }
    Ok(tokens)
}

/// What stands between two quotes, with doubled ones made single, and the bytes of all.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let mut inner = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            inner.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            inner.push(quote);
            chars.next();
        } else {
            return Some((inner, at + quote.len_utf8()));
        }
    }
    None
}

/// A part of the text: a predicate, or what is compared in one.
enum Node {
    Filter(Filter),
    Property(String),
    Literal(Literal),
    /// Literals in parentheses.
    List(Vec<Literal>),
}

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
    depth: usize,
    end: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    fn position(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(position, _)| *position)
    }

    fn expected(&self, what: &str) -> QueryError {
        fail(self.position(), &format!("expected {what}"))
    }

    fn next_is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let found = self.next_is(symbol);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, symbol: &str) -> Result<(), QueryError> {
        if self.take(symbol) { Ok(()) } else { Err(self.expected(&format!("`{symbol}`"))) }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(name, false)) if name.eq_ignore_ascii_case(word));
        self.at += usize::from(found);
        found
    }

    /// Whether so many more may stand within each other here.
    fn allow(&self, more: usize) -> Result<(), QueryError> {
        if self.depth + more > NESTING {
            return Err(fail(self.position(), &format!("nested deeper than {NESTING}")));
        }
        Ok(())
    }

    fn unsupported(&self, operator: &str) -> QueryError {
        QueryError::Unsupported { parameter: "filter", operator: operator.to_owned(), position: self.position() }
    }

    fn boolean(&self, node: Node) -> Result<Filter, QueryError> {
        match node {
            Node::Filter(filter) => Ok(filter),
            Node::Literal(Literal::Flag(flag)) => Ok(Filter::Constant(flag)),
            Node::Property(name) => Err(self.expected(&format!("a comparison of `{name}`, such as {name} = TRUE"))),
            Node::Literal(_) | Node::List(_) => Err(self.expected("a comparison")),
        }
    }

    /// Predicates joined by OR, and closer by AND. Loops, so that only parentheses take the stack.
    fn expression(&mut self) -> Result<Node, QueryError> {
        let (mut any, mut all) = (Vec::new(), Vec::new());
        loop {
            let mut negations = 0;
            while self.take_word("NOT") {
                negations += 1;
                self.allow(negations)?;
            }
            let node = self.comparison()?;
            let and = self.take_word("AND");
            let or = !and && self.take_word("OR");
            if any.is_empty() && all.is_empty() && negations == 0 && !and && !or {
                return Ok(node);
            }
            let filter = self.boolean(node)?;
            all.push((0..negations).fold(filter, |filter, _| Filter::Not(Box::new(filter))));
            if and {
                continue;
            }
            any.push(Filter::all(std::mem::take(&mut all)));
            if !or {
                return Ok(Node::Filter(Filter::any(any)));
            }
        }
    }

    /// An operand with what is said of it, if something is.
    fn comparison(&mut self) -> Result<Node, QueryError> {
        let left = self.operand()?;
        self.no_arithmetic()?;
        let before = self.at;
        let negated = self.take_word("NOT");
        if self.take_word("LIKE") {
            self.at -= 1;
            return Err(self.unsupported("LIKE"));
        }
        let test = if self.take_word("BETWEEN") {
            let lo = self.literal()?;
            if !self.take_word("AND") {
                return Err(self.expected("AND between the ends"));
            }
            Test::Between(lo, self.literal()?)
        } else if self.take_word("IN") {
            match self.operand()? {
                Node::List(list) => Test::In(list),
                Node::Literal(one) => Test::In(vec![one]),
                Node::Filter(_) | Node::Property(_) => return Err(self.unsupported("IN with properties")),
            }
        } else if negated {
            self.at = before;
            return Err(self.expected("AND, OR or the end"));
        } else if self.take_word("IS") {
            let negated = self.take_word("NOT");
            if !self.take_word("NULL") {
                return Err(self.expected("NULL"));
            }
            return self.test(left, Test::IsNull, negated);
        } else {
            return self.compared(left);
        };
        self.test(left, test, negated)
    }

    fn test(&self, left: Node, test: Test, negated: bool) -> Result<Node, QueryError> {
        let Node::Property(property) = left else {
            return Err(self.unsupported("a test of something else than a property"));
        };
        let test = Filter::Test { property, test };
        Ok(Node::Filter(if negated { Filter::Not(Box::new(test)) } else { test }))
    }

    fn compared(&mut self, left: Node) -> Result<Node, QueryError> {
        let comparison = match self.peek() {
            Some(Token::Symbol("=")) => Comparison::Equal,
            Some(Token::Symbol("<>" | "!=")) => Comparison::NotEqual,
            Some(Token::Symbol("<")) => Comparison::Less,
            Some(Token::Symbol(">")) => Comparison::Greater,
            Some(Token::Symbol("<=")) => Comparison::AtMost,
            Some(Token::Symbol(">=")) => Comparison::AtLeast,
            _ => return Ok(left),
        };
        let operator = self.at;
        self.at += 1;
        let right = self.operand()?;
        self.no_arithmetic()?;
        if !matches!((&left, &right), (Node::Property(_), Node::Literal(_)) | (Node::Literal(_), Node::Property(_))) {
            self.at = operator;
        }
        let (property, comparison, literal) = match (left, right) {
            (Node::Property(name), Node::Literal(literal)) => (name, comparison, literal),
            (Node::Literal(literal), Node::Property(name)) => (name, comparison.turned(), literal),
            (Node::Property(_), Node::Property(_)) => return Err(self.unsupported("a comparison of two properties")),
            (Node::Literal(_), Node::Literal(_)) => return Err(self.unsupported("a comparison of two literals")),
            (_, _) => return Err(self.expected("a property and a literal")),
        };
        Ok(Node::Filter(Filter::Test { property, test: Test::Compare(comparison, literal) }))
    }

    /// Arithmetic is told by its operator.
    fn no_arithmetic(&self) -> Result<(), QueryError> {
        match self.peek() {
            Some(Token::Symbol(symbol @ ("+" | "-" | "*" | "/" | "%" | "^"))) => Err(self.unsupported(symbol)),
            Some(Token::Name(name, false)) if name.eq_ignore_ascii_case("div") => Err(self.unsupported("DIV")),
            _ => Ok(()),
        }
    }

    fn literal(&mut self) -> Result<Literal, QueryError> {
        let node = self.operand()?;
        self.no_arithmetic()?;
        match node {
            Node::Literal(literal) => Ok(literal),
            Node::Property(_) => Err(self.unsupported("a comparison of two properties")),
            Node::Filter(_) | Node::List(_) => Err(self.expected("a literal")),
        }
    }

    fn operand(&mut self) -> Result<Node, QueryError> {
        let position = self.at;
        match self.peek().cloned() {
            Some(Token::Number(value)) => {
                self.at += 1;
                Ok(Node::Literal(Literal::Number(value)))
            }
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(Node::Literal(Literal::Text(text)))
            }
            Some(Token::Symbol("-" | "+")) => self.signed(),
            Some(Token::Symbol("(")) => self.parentheses(),
            Some(Token::Name(name, quoted)) => {
                self.at += 1;
                if self.next_is("(") && !quoted {
                    self.at = position;
                    return self.function(&name);
                }
                Ok(match name.to_ascii_uppercase().as_str() {
                    "TRUE" if !quoted => Node::Literal(Literal::Flag(true)),
                    "FALSE" if !quoted => Node::Literal(Literal::Flag(false)),
                    "AND" | "OR" | "NOT" | "BETWEEN" | "IN" | "IS" | "NULL" | "LIKE" if !quoted => {
                        self.at = position;
                        return Err(self.expected("a property or a literal"));
                    }
                    _ => Node::Property(name),
                })
            }
            Some(Token::Symbol(_)) | None => Err(self.expected("a property, a literal or a parenthesis")),
        }
    }

    /// A number behind its signs.
    fn signed(&mut self) -> Result<Node, QueryError> {
        let (start, mut negative, mut signs) = (self.at, false, 0);
        while let Some(Token::Symbol(sign @ ("-" | "+"))) = self.peek() {
            negative ^= *sign == "-";
            signs += 1;
            self.at += 1;
            self.allow(signs)?;
        }
        match self.peek().cloned() {
            Some(Token::Number(value)) => {
                self.at += 1;
                Ok(Node::Literal(Literal::Number(if negative { -value } else { value })))
            }
            Some(Token::Name(..) | Token::Symbol("(")) => {
                self.at = start;
                Err(self.unsupported(if negative { "-" } else { "+" }))
            }
            _ => Err(self.expected("a number")),
        }
    }

    fn parentheses(&mut self) -> Result<Node, QueryError> {
        self.at += 1;
        self.depth += 1;
        self.allow(0)?;
        let first = self.expression()?;
        let node = if self.next_is(",") {
            let mut list = Vec::new();
            let mut node = first;
            loop {
                match node {
                    Node::Literal(literal) => list.push(literal),
                    _ => return Err(self.unsupported("a list of something else than literals")),
                }
                if !self.take(",") {
                    break Node::List(list);
                }
                node = self.operand()?;
                self.no_arithmetic()?;
            }
        } else {
            first
        };
        self.need(")")?;
        self.depth -= 1;
        Ok(node)
    }

    fn function(&mut self, name: &str) -> Result<Node, QueryError> {
        match name.to_ascii_uppercase().as_str() {
            upper @ ("DATE" | "TIMESTAMP") => {
                self.at += 1;
                let literal = self.instant(upper == "DATE")?;
                Ok(Node::Literal(literal))
            }
            "S_INTERSECTS" => {
                self.at += 1;
                self.need("(")?;
                let property = self.property("S_INTERSECTS")?;
                self.need(",")?;
                let bbox = self.bbox()?;
                self.need(")")?;
                Ok(Node::Filter(Filter::Test { property, test: Test::Intersects(bbox) }))
            }
            "T_DURING" => {
                self.at += 1;
                self.need("(")?;
                let property = self.property("T_DURING")?;
                self.need(",")?;
                if !self.take_word("INTERVAL") {
                    return Err(self.expected("INTERVAL('FROM','TO')"));
                }
                self.need("(")?;
                let lo = self.interval_end()?;
                self.need(",")?;
                let hi = self.interval_end()?;
                self.need(")")?;
                self.need(")")?;
                Ok(Node::Filter(Filter::Test { property, test: Test::During(lo, hi) }))
            }
            upper => Err(self.unsupported(upper)),
        }
    }

    /// A property that a function is about.
    fn property(&mut self, function: &str) -> Result<String, QueryError> {
        match self.operand()? {
            Node::Property(name) => Ok(name),
            Node::Filter(_) | Node::Literal(_) | Node::List(_) => {
                Err(self.unsupported(&format!("{function} of something else than a property")))
            }
        }
    }

    fn bbox(&mut self) -> Result<Vec<Exact>, QueryError> {
        match self.peek() {
            Some(Token::Name(name, false)) if name.eq_ignore_ascii_case("BBOX") => self.at += 1,
            Some(Token::Name(name, false)) => return Err(self.unsupported(&name.to_ascii_uppercase())),
            _ => return Err(self.expected("BBOX(…)")),
        }
        self.need("(")?;
        let mut numbers = Vec::new();
        loop {
            match self.literal()? {
                Literal::Number(value) if numbers.len() < 6 => numbers.push(value),
                _ => return Err(self.expected("4 or 6 numbers")),
            }
            if !self.take(",") {
                break;
            }
        }
        if !matches!(numbers.len(), 4 | 6) {
            return Err(self.expected("4 or 6 numbers"));
        }
        self.need(")")?;
        Ok(numbers)
    }

    /// `('…')` as a point of time.
    fn instant(&mut self, date: bool) -> Result<Literal, QueryError> {
        self.need("(")?;
        let literal = self.instant_text(date)?;
        self.need(")")?;
        Ok(literal)
    }

    fn instant_text(&mut self, date: bool) -> Result<Literal, QueryError> {
        let what = if date { "a date such as '2024-01-31'" } else { "a timestamp such as '2024-01-31T12:00:00Z'" };
        let Some(Token::Text(written)) = self.peek().cloned() else { return Err(self.expected(what)) };
        let seconds = instant(&written).filter(|_| !date || !written.contains(['T', 't', ' ', ':']));
        let seconds = seconds.ok_or_else(|| self.expected(what))?;
        self.at += 1;
        Ok(Literal::Instant { seconds, written, date })
    }

    fn interval_end(&mut self) -> Result<Option<Literal>, QueryError> {
        match self.peek() {
            Some(Token::Text(text)) if text == ".." => {
                self.at += 1;
                Ok(None)
            }
            Some(Token::Name(name, false)) if name.eq_ignore_ascii_case("DATE") => {
                self.at += 1;
                self.instant(true).map(Some)
            }
            Some(Token::Name(name, false)) if name.eq_ignore_ascii_case("TIMESTAMP") => {
                self.at += 1;
                self.instant(false).map(Some)
            }
            Some(Token::Name(..)) => Err(self.unsupported("INTERVAL of properties")),
            _ => self.instant_text(false).map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json_of(text: &str) -> Value {
        Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_json()
    }

    #[test]
    fn predicates_are_read_as_cql2_json_has_them() {
        let is = |text: &str, expected: Value| assert_eq!(json_of(text), expected, "{text}");
        is("a=1", json!({"op":"=","args":[{"property":"a"},1]}));
        is("-1.5 < \"a b\"", json!({"op":">","args":[{"property":"a b"},-1.5]}));
        is("a NOT IN (1,2)", json!({"op":"not","args":[{"op":"in","args":[{"property":"a"},[1,2]]}]}));
        is("(((a IS NOT NULL)))", json!({"op":"not","args":[{"op":"isNull","args":[{"property":"a"}]}]}));
        let between = json!({"op":"between","args":[{"property":"a"},1,2]});
        is(
            "a between 1 and 2 and b = TRUE or not c = 'it''s'",
            json!({"op":"or","args":[
                {"op":"and","args":[between,{"op":"=","args":[{"property":"b"},true]}]},
                {"op":"not","args":[{"op":"=","args":[{"property":"c"},"it's"]}]}]}),
        );
        is("NOT a BETWEEN 1 AND 2", json!({"op":"not","args":[between]}));
        is(
            "s_intersects(geometry, BBOX(-1, 0, 1, 2.5))",
            json!({"op":"s_intersects","args":[{"property":"geometry"},{"bbox":[-1,0,1,2.5]}]}),
        );
        is(
            "T_DURING(t, INTERVAL('2020-01-01','..'))",
            json!({"op":"t_during","args":[{"property":"t"},{"interval":["2020-01-01",".."]}]}),
        );
        is("t >= DATE('2020-01-01')", json!({"op":">=","args":[{"property":"t"},{"date":"2020-01-01"}]}));
        is("eo:cloud.cover <> 0.1", json!({"op":"<>","args":[{"property":"eo:cloud.cover"},0.1]}));
        let three = json!([{"op":"=","args":[{"property":"a"},1]},{"op":"=","args":[{"property":"b"},2]},{"op":"=","args":[{"property":"c"},3]}]);
        is("(a = 1 AND b = 2) AND (c = 3)", json!({"op":"and","args":three}));
        is("a = 1 OR (b = 2 OR c = 3)", json!({"op":"or","args":three}));
        is("notes = 1", json!({"op":"=","args":[{"property":"notes"},1]}));
    }

    #[test]
    fn what_is_not_served_is_named() {
        for (text, operator) in [
            ("a LIKE 'x%'", "LIKE"),
            ("a NOT LIKE 'x%'", "LIKE"),
            ("CASEI(a) = 'x'", "CASEI"),
            ("a + 1 > 2", "+"),
            ("2 * a > 2", "*"),
            ("a > (b - 1)", "-"),
            ("1 = (a div 2)", "DIV"),
            ("-a > 1", "-"),
            ("a = - (1)", "-"),
            ("a = b", "two properties"),
            ("1 = 1", "two literals"),
            ("S_WITHIN(a, BBOX(0,0,1,1))", "S_WITHIN"),
            ("S_INTERSECTS(a, POINT(0 0))", "POINT"),
            ("T_AFTER(a, DATE('2020-01-01'))", "T_AFTER"),
            ("T_DURING(INTERVAL(a,b), INTERVAL('2020-01-01','..'))", "INTERVAL"),
            ("A_CONTAINS(a, (1,2))", "A_CONTAINS"),
            ("avg(a) > 1", "AVG"),
        ] {
            match Filter::parse(text) {
                Err(QueryError::Unsupported { operator: found, .. }) => {
                    assert!(found.contains(operator), "{text}: {found}")
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_is_no_predicate_is_told_where() {
        for text in [
            "",
            "a",
            "1",
            "'x'",
            "a =",
            "= 1",
            "a = 1 b",
            "a = 1 AND",
            "AND a = 1",
            "(a = 1",
            "a = 1)",
            "a = 'x",
            "\"a = 1",
            "a BETWEEN 1",
            "a BETWEEN 1 OR 2",
            "a IN",
            "a IN ()",
            "a IN (1,)",
            "a IS",
            "a IS NOT",
            "NOT",
            "a == 1",
            "a = 1e999",
            "a = #",
            "S_INTERSECTS(a, BBOX(1,2,3))",
            "S_INTERSECTS(a)",
            "T_DURING(a, INTERVAL('x','..'))",
            "a = DATE('x')",
            "a = DATE('2020-01-01T00:00:00Z')",
            "a NOT = 1",
            "a = NULL",
            "a = (1,2)",
            "(1,2)",
            "a = - 'x'",
        ] {
            let error = Filter::parse(text).expect_err(text);
            assert!(matches!(error, QueryError::Grammar { position, .. } if position <= text.len()), "{text}: {error}");
        }
    }

    #[test]
    fn bombs_end_in_errors() {
        for bomb in ["(", "NOT ", "-", "((((a = 1) AND ", "a = (", "not(", "a in ("] {
            for count in [65, 400, 8000 / bomb.len()] {
                let text = bomb.repeat(count);
                assert!(matches!(Filter::parse(&text), Err(QueryError::Grammar { .. })), "{bomb} {count}");
            }
        }
        let fine = format!("{}a = 1{}", "(".repeat(60), ")".repeat(60));
        assert!(Filter::parse(&fine).is_ok());
        let long = vec!["a = 1"; 700].join(" OR ");
        assert!(Filter::parse(&long).is_ok());
        assert!(matches!(Filter::parse(&"a".repeat(9000)), Err(QueryError::Grammar { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_a_predicate_or_an_error(text in r#"([a-z]|[0-9.]|[ ()',"=<>*+-]|NOT |AND |OR |IN |BETWEEN |IS NULL|é){0,40}"#) {
            let _ = Filter::parse(&text);
        }
    }
}
