//! Numbers that are worked out: `5*1024*1024`, `(1k+2k)*3`. fio's manual, section *Parameter types*.

/// Brackets within brackets.
const DEEPEST: usize = 32;

/// The value of an expression of numbers, `+ - * /` and brackets. Whole numbers, and none below 0. `number` reads one, with its unit.
pub(super) fn value(text: &str, number: &dyn Fn(&str) -> Result<u64, String>) -> Result<u64, String> {
    let mut reader = Reader { all: text, rest: text, number, depth: 0 };
    let value = reader.sum()?;
    if reader.rest.is_empty() { Ok(value) } else { Err(format!("'{text}': '{}' stands where the expression is over", reader.rest)) }
}

struct Reader<'a> {
    all: &'a str,
    rest: &'a str,
    number: &'a dyn Fn(&str) -> Result<u64, String>,
    depth: usize,
}

impl Reader<'_> {
    /// The next character, if it is one of `which`.
    fn take(&mut self, which: &[char]) -> Option<char> {
        let rest = self.rest.trim_start();
        let next = rest.chars().next().filter(|next| which.contains(next))?;
        self.rest = &rest[next.len_utf8()..];
        Some(next)
    }

    fn sum(&mut self) -> Result<u64, String> {
        let mut sum = self.product()?;
        while let Some(sign) = self.take(&['+', '-']) {
            let next = self.product()?;
            let result = if sign == '+' { sum.checked_add(next) } else { sum.checked_sub(next) };
            sum = result.ok_or_else(|| self.out_of_range())?;
        }
        Ok(sum)
    }

    fn product(&mut self) -> Result<u64, String> {
        let mut product = self.factor()?;
        while let Some(sign) = self.take(&['*', '/']) {
            let next = self.factor()?;
            let result = if sign == '*' { product.checked_mul(next) } else { product.checked_div(next) };
            product = match result {
                Some(result) => result,
                None if sign == '/' => return Err(format!("'{}' divides by 0", self.all)),
                None => return Err(self.out_of_range()),
            };
        }
        Ok(product)
    }

    fn factor(&mut self) -> Result<u64, String> {
        if self.take(&['(']).is_none() {
            return self.plain();
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} brackets within each other"));
        }
        let inside = self.sum()?;
        self.take(&[')']).ok_or_else(|| format!("'{}': a ) is missing", self.all))?;
        self.depth -= 1;
        Ok(inside)
    }

    fn plain(&mut self) -> Result<u64, String> {
        let rest = self.rest.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(end);
        if text.is_empty() {
            return Err(format!("'{}': a number is missing", self.all));
        }
        self.rest = behind;
        (self.number)(text)
    }

    fn out_of_range(&self) -> String {
        format!("'{}' is below 0, or too large", self.all)
    }
}
