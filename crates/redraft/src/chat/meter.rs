//! Counts what a template does with lists and maps.
//!
//! The template engine charges instructions and bytes, but it does not see how much work hides in a value: a
//! list that holds another list twice, which holds another one twice …, is made by sixty instructions and takes
//! 2^60 visits to print, compare or hash. So every list and map that a template makes is put into a
//! [`Metered`] shell ([`super::rewrite`] says where). A shell looks like what is in it and charges every visit
//! to the budget of the render. When that is used up, all shells are empty, and whatever is under way ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use minijinja::value::{DynObject, Enumerator, Object, ObjectRepr, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Deepest nesting of tuples, which the engine has to see as they are.
const MAX_TUPLES: usize = 8;

/// Longest text that a template may give a name to, beside what its input allows. The engine goes through a
/// text in places that it does not charge for, so texts that are used many times must be short.
const MAX_TEXT: usize = 16 << 10;

/// Most items of a list or map that a template gives a name to. Lists that are put together are as long as
/// their parts say, without being made.
const MAX_ITEMS: usize = 1 << 20;

/// What is left of the visits of one render. Cloning is cheap and shares the budget.
#[derive(Debug, Clone)]
pub(super) struct Meter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    left: AtomicI64,
    max_text: usize,
    /// The line of the template where a list or map was last made.
    line: AtomicU32,
}

impl Meter {
    /// A meter for so many visits, and for texts made from input of so many bytes.
    pub(super) fn new(budget: u64, input: usize) -> Meter {
        let left = i64::try_from(budget).unwrap_or(i64::MAX);
        let max_text = input.saturating_mul(2).saturating_add(MAX_TEXT);
        Meter(Arc::new(Inner { left: left.into(), max_text, line: 1.into() }))
    }

    /// Counts visits; `false` when the budget is used up.
    fn charge(&self, visits: usize) -> bool {
        let visits = i64::try_from(visits).unwrap_or(i64::MAX);
        let before = self.0.left.load(Ordering::Relaxed);
        // It only shrinks, and stays far from the other end of the range.
        self.0.left.store(before.saturating_sub(visits).max(-1), Ordering::Relaxed);
        before >= visits
    }

    /// The line at which the budget ran out, if it did.
    pub(super) fn overrun(&self) -> Option<usize> {
        let over = self.0.left.load(Ordering::Relaxed) < 0;
        over.then(|| self.0.line.load(Ordering::Relaxed) as usize)
    }

    /// Puts a value that a template made at `line` into a shell.
    ///
    /// # Errors
    /// The budget is used up; a text that is too long; tuples nested too deeply.
    pub(super) fn admit(&self, line: u32, value: Value) -> Result<Value, Error> {
        if self.0.left.load(Ordering::Relaxed) < 0 {
            return Err(ErrorKind::OutOfFuel.into());
        }
        self.0.line.store(line, Ordering::Relaxed);
        if let Some(len) = value.as_str().map(str::len).filter(|&len| len > self.0.max_text) {
            let text = format!(
                "a text of {len} bytes is longer than a template may make of this input: expected at most {}",
                self.0.max_text
            );
            return Err(Error::new(ErrorKind::InvalidOperation, text));
        }
        self.shell(value, 0)
    }

    /// `value` in a shell, if it is a list or a map that needs one.
    fn shell(&self, value: Value, tuples: usize) -> Result<Value, Error> {
        let Some(object) = value.as_object() else { return Ok(value) };
        if let Some(tuple) = object.downcast_ref::<Tuple>() {
            if tuples == MAX_TUPLES {
                let text = format!("tuples nested deeper than {MAX_TUPLES}");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
            let items: Result<Vec<Value>, Error> =
                tuple.iter().map(|v| self.shell(v.clone(), tuples + 1)).collect();
            return Ok(Value::from(Tuple::from(items?)));
        }
        let container = matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::Iterable);
        // The engine has to recognise a namespace to assign to it, and keyword arguments to pass them on.
        let known =
            object.is::<Metered>() || value.is_kwargs() || object.type_name().ends_with("::Namespace");
        if !container || known {
            return Ok(value);
        }
        // One level is asked here; the next ones are shells that know their length.
        let len = object.enumerator_len();
        if let Some(len) = len.filter(|&len| len > MAX_ITEMS) {
            let text = format!("a list of {len} items is too long: expected at most {MAX_ITEMS}");
            return Err(Error::new(ErrorKind::InvalidOperation, text));
        }
        Ok(Value::from_object(Metered { inner: object.clone(), len, meter: self.clone() }))
    }
}

/// A list or map that charges visits.
struct Metered {
    inner: DynObject,
    len: Option<usize>,
    meter: Meter,
}

impl std::fmt::Debug for Metered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Printing is `Object::render`; this form would look inside without counting.
        f.write_str("<list or map>")
    }
}

impl Metered {
    /// An item on its way out: charged, and in a shell of its own. `None` when the budget is used up.
    fn visit(meter: &Meter, item: Value) -> Option<Value> {
        let bytes = item.as_str().map_or(0, str::len);
        let bytes = if bytes > meter.0.max_text { usize::MAX } else { bytes };
        if !meter.charge(bytes / 64 + 1) {
            return None;
        }
        Some(meter.shell(item, 0).unwrap_or_else(Value::from))
    }
}

impl Object for Metered {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.inner.repr()
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        Metered::visit(&self.meter, self.inner.get_value(key)?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Value> {
        Metered::visit(&self.meter, self.inner.get_value_by_str(key)?)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        // Starting to look costs something too: empty lists are visited as well.
        if !self.meter.charge(1) {
            return Enumerator::Empty;
        }
        let meter = self.meter.clone();
        match self.inner.enumerate() {
            // By index, so that it can be walked from both ends; `get_value` charges.
            Enumerator::Seq(len) => Enumerator::Seq(len),
            Enumerator::NonEnumerable => Enumerator::NonEnumerable,
            Enumerator::Empty => Enumerator::Empty,
            _ => match (self.inner.repr(), self.inner.try_iter()) {
                (_, None) => Enumerator::NonEnumerable,
                (_, Some(items)) => Enumerator::Iter(Box::new(Counted {
                    items: items.map_while(move |item| Metered::visit(&meter, item)),
                    left: self.len,
                })),
            },
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        self.len
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.len != Some(0)
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        self.inner.call(state, args)
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        self.inner.call_method(state, method, args)
    }
}

/// An iterator whose length is known from elsewhere.
struct Counted<I> {
    items: I,
    left: Option<usize>,
}

impl<I: Iterator<Item = Value>> Iterator for Counted<I> {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.left = self.left.map(|n| n.saturating_sub(1));
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // A length that turns out too long does no harm, one that is trusted for an allocation would.
        (self.left.unwrap_or(0).min(1024), self.left)
    }
}
