//! The body of a function: expressions get names where they are computed, pointers are read where they are used.

use anyhow::{Result, bail};
use naga::proc::TypeResolution;
use naga::valid::FunctionInfo;
use naga::{
    AddressSpace, ArraySize, AtomicFunction, Barrier, BinaryOperator, Block, Expression, Function, Handle,
    Literal, MathFunction, RelationalFunction, ScalarKind, Statement, Type, TypeInner, UnaryOperator,
    VectorSize,
};

use super::{Writer, argument_name, function_name, global_name, letter, literal};

/// Loops that count to so much are unrolled, since arrays of an invocation are in registers only if no index is a variable.
const UNROLLED: u32 = 16;

const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// What is being written of a function.
pub(super) struct Body<'w, 'a> {
    w: &'w mut Writer<'a>,
    f: &'a Function,
    info: &'a FunctionInfo,
    indent: usize,
    labels: usize,
    /// For each loop around, its label, and whether something goes there.
    loops: Vec<(usize, bool)>,
}

impl<'w, 'a> Body<'w, 'a> {
    pub(super) fn new(w: &'w mut Writer<'a>, f: &'a Function, info: &'a FunctionInfo) -> Body<'w, 'a> {
        Body { w, f, info, indent: 1, labels: 0, loops: Vec::new() }
    }

    /// Writes it, after some lines.
    pub(super) fn write(mut self, first: &[String]) -> Result<()> {
        for line in first {
            self.line(line);
        }
        for (h, local) in self.f.local_variables.iter() {
            let ty = self.w.named_type(local.ty)?;
            let init = local.init.map_or(Ok(format!("{ty}{{}}")), |e| self.value(e))?;
            self.line(&format!("{ty} {} = {init};", self.local_name(h)));
        }
        let f = self.f;
        self.block(&f.body)
    }

    fn line(&mut self, text: &str) {
        for _ in 0..self.indent {
            self.w.out += "    ";
        }
        self.w.out += text;
        self.w.out.push('\n');
    }

    fn local_name(&self, h: Handle<naga::LocalVariable>) -> String {
        format!("{}_v{}", self.f.local_variables[h].name.as_deref().unwrap_or("local"), h.index())
    }

    fn name(&self, h: Handle<Expression>) -> String {
        match self.f.named_expressions.get(&h) {
            Some(name) => format!("{name}_{}", h.index()),
            None => format!("e{}", h.index()),
        }
    }

    fn inner(&self, h: Handle<Expression>) -> &TypeInner {
        self.info[h].ty.inner_with(&self.w.module.types)
    }

    fn expression_type(&self, h: Handle<Expression>) -> Result<String> {
        match &self.info[h].ty {
            TypeResolution::Handle(ty) => self.w.named_type(*ty),
            TypeResolution::Value(inner) => self.w.type_name(inner),
        }
    }

    fn is_pointer(&self, h: Handle<Expression>) -> bool {
        matches!(self.inner(h), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
    }

    /// The kind of the numbers of a value, and how many there are.
    fn shape(&self, h: Handle<Expression>) -> Result<(ScalarKind, Option<VectorSize>)> {
        match *self.inner(h) {
            TypeInner::Scalar(s) => Ok((s.kind, None)),
            TypeInner::Vector { size, scalar } => Ok((scalar.kind, Some(size))),
            ref other => bail!("an operation on {other:?}"),
        }
    }

    /// A value that has its name, or needs none.
    fn value(&self, h: Handle<Expression>) -> Result<String> {
        Ok(match self.f.expressions[h] {
            Expression::Literal(l) => literal(l)?,
            Expression::Constant(c) => self.constant(self.w.module.constants[c].init)?,
            Expression::ZeroValue(ty) => format!("{}{{}}", self.w.named_type(ty)?),
            Expression::FunctionArgument(i) => argument_name(self.f, i as usize),
            _ => self.name(h),
        })
    }

    fn constant(&self, h: Handle<Expression>) -> Result<String> {
        let module = self.w.module;
        Ok(match &module.global_expressions[h] {
            Expression::Literal(l) => literal(*l)?,
            Expression::Constant(c) => self.constant(module.constants[*c].init)?,
            Expression::ZeroValue(ty) => format!("{}{{}}", self.w.named_type(*ty)?),
            Expression::Compose { ty, components } => {
                let parts: Result<Vec<_>> = components.iter().map(|&c| self.constant(c)).collect();
                self.composed(*ty, &parts?)?
            }
            other => bail!("the constant {other:?}"),
        })
    }

    fn composed(&self, ty: Handle<Type>, parts: &[String]) -> Result<String> {
        let name = self.w.named_type(ty)?;
        Ok(match self.w.module.types[ty].inner {
            TypeInner::Array { .. } => format!("{name}{{{{{}}}}}", parts.join(", ")),
            _ => format!("{name}{{{}}}", parts.join(", ")),
        })
    }

    /// What a pointer points at.
    fn place(&self, h: Handle<Expression>) -> Result<String> {
        let module = self.w.module;
        Ok(match self.f.expressions[h] {
            Expression::LocalVariable(v) => self.local_name(v),
            Expression::FunctionArgument(i) => format!("(*{})", argument_name(self.f, i as usize)),
            Expression::GlobalVariable(g) => {
                let g = &module.global_variables[g];
                let dynamic =
                    matches!(module.types[g.ty].inner, TypeInner::Array { size: ArraySize::Dynamic, .. });
                match g.space {
                    AddressSpace::Storage { .. } if !dynamic => format!("(*{})", global_name(g)),
                    _ => global_name(g),
                }
            }
            Expression::Access { base, index } => {
                let (place, index) = (self.place(base)?, self.value(index)?);
                self.part(&place, self.inner(base), Err(index))?
            }
            Expression::AccessIndex { base, index } => {
                let place = self.place(base)?;
                self.part(&place, self.inner(base), Ok(index))?
            }
            ref other => bail!("a pointer that is {other:?}"),
        })
    }

    /// A part of a place or value, by a number or by a text.
    fn part(&self, whole: &str, inner: &TypeInner, index: Result<u32, String>) -> Result<String> {
        let types = &self.w.module.types;
        let inner = match inner {
            TypeInner::Pointer { base, .. } => &types[*base].inner,
            other => other,
        };
        let text = |index: Result<u32, String>| index.map_or_else(|text| text, |n| format!("{n}u"));
        Ok(match (inner, index) {
            (TypeInner::Array { size: ArraySize::Dynamic, .. }, index) => {
                format!("{whole}[{}]", text(index))
            }
            (TypeInner::Array { .. }, index) => format!("{whole}.at[{}]", text(index)),
            (TypeInner::Struct { members, .. }, Ok(i)) => {
                format!("{whole}.{}_", members[i as usize].name.as_deref().unwrap_or("?"))
            }
            (TypeInner::Vector { .. } | TypeInner::ValuePointer { size: Some(_), .. }, Ok(i)) => {
                format!("{whole}.{}", COMPONENTS[i as usize])
            }
            (TypeInner::Vector { size, .. }, Err(i)) => format!("component_{}({whole}, {i})", *size as u8),
            (other, _) => bail!("a part of {other:?}"),
        })
    }

    /// An operation on each component, or on scalars.
    fn each(
        &self,
        result: Handle<Expression>,
        of: &[Handle<Expression>],
        one: impl Fn(&[String]) -> String,
    ) -> Result<String> {
        let TypeInner::Vector { size, .. } = *self.inner(result) else {
            let values: Result<Vec<_>> = of.iter().map(|&h| self.value(h)).collect();
            return Ok(one(&values?));
        };
        let mut parts = Vec::new();
        for component in &COMPONENTS[..size as usize] {
            let mut values = Vec::new();
            for &h in of {
                let value = self.value(h)?;
                let vector = matches!(self.inner(h), TypeInner::Vector { .. });
                values.push(if vector { format!("{value}.{component}") } else { value });
            }
            parts.push(one(&values));
        }
        Ok(format!("{}{{{}}}", self.expression_type(result)?, parts.join(", ")))
    }

    /// The text that computes an expression.
    fn expression(&self, h: Handle<Expression>) -> Result<String> {
        let module = self.w.module;
        Ok(match self.f.expressions[h] {
            Expression::Compose { ty, ref components } => {
                let parts: Result<Vec<_>> = components.iter().map(|&c| self.value(c)).collect();
                let mut flat = Vec::new();
                // A vector may be composed of vectors.
                for (text, &c) in parts?.into_iter().zip(components) {
                    match (&module.types[ty].inner, self.inner(c)) {
                        (TypeInner::Vector { .. }, TypeInner::Vector { size, .. }) => {
                            flat.extend(COMPONENTS[..*size as usize].iter().map(|k| format!("{text}.{k}")));
                        }
                        _ => flat.push(text),
                    }
                }
                self.composed(ty, &flat)?
            }
            Expression::Access { base, index } => {
                let (whole, index) = (self.value(base)?, self.value(index)?);
                self.part(&whole, self.inner(base), Err(index))?
            }
            Expression::AccessIndex { base, index } => {
                self.part(&self.value(base)?, self.inner(base), Ok(index))?
            }
            Expression::Splat { value, .. } => self.each(h, &[value], |v| v[0].clone())?,
            Expression::Swizzle { size, vector, pattern } => {
                let from = self.value(vector)?;
                let parts: Vec<_> = pattern[..size as usize]
                    .iter()
                    .map(|&c| format!("{from}.{}", COMPONENTS[c as usize]))
                    .collect();
                format!("{}{{{}}}", self.expression_type(h)?, parts.join(", "))
            }
            Expression::Load { pointer } => {
                let place = self.place(pointer)?;
                let atomic = matches!(*self.inner(pointer), TypeInner::Pointer { base, .. }
                    if matches!(module.types[base].inner, TypeInner::Atomic(_)));
                if atomic { format!("atomic_load(&{place})") } else { place }
            }
            Expression::Unary { op, expr } => {
                let (kind, _) = self.shape(expr)?;
                let call = match (op, kind) {
                    (UnaryOperator::Negate, ScalarKind::Float | ScalarKind::Sint) => {
                        format!("{}_neg", letter(kind)?)
                    }
                    (UnaryOperator::LogicalNot, _) => "!".into(),
                    (UnaryOperator::BitwiseNot, _) => "~".into(),
                    other => bail!("{other:?}"),
                };
                self.each(h, &[expr], |v| format!("{call}({})", v[0]))?
            }
            Expression::Binary { op, left, right } => self.binary(h, op, left, right)?,
            Expression::Select { condition, accept, reject } => {
                self.each(h, &[condition, accept, reject], |v| format!("{} ? {} : {}", v[0], v[1], v[2]))?
            }
            Expression::Relational { fun, argument } => {
                let value = self.value(argument)?;
                let (_, Some(size)) = self.shape(argument)? else { return Ok(value) };
                let between = match fun {
                    RelationalFunction::All => " && ",
                    RelationalFunction::Any => " || ",
                    other => bail!("{other:?}"),
                };
                let parts = COMPONENTS[..size as usize].iter().map(|c| format!("{value}.{c}"));
                parts.collect::<Vec<_>>().join(between)
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let of: Vec<_> = [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect();
                self.math(h, fun, &of)?
            }
            Expression::As { expr, kind, convert } => {
                let (from, _) = self.shape(expr)?;
                if convert.is_some_and(|width| width != 4 && kind != ScalarKind::Bool) {
                    bail!("a conversion to {kind:?} of another width");
                }
                let call = match convert {
                    _ if from == kind => String::new(),
                    Some(_) => format!("{}_to_{}", letter(from)?, letter(kind)?),
                    None => format!("{}_as_{}", letter(from)?, letter(kind)?),
                };
                self.each(h, &[expr], |v| format!("{call}({})", v[0]))?
            }
            ref other => bail!("{other:?}"),
        })
    }

    fn binary(
        &self,
        h: Handle<Expression>,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<String> {
        use BinaryOperator as B;
        let kind = letter(self.shape(left)?.0)?;
        let call = match op {
            B::Add => "add",
            B::Subtract => "sub",
            B::Multiply => "mul",
            B::Divide => "div",
            B::Modulo if kind != 'f' => "rem",
            B::ShiftLeft => "shl",
            B::ShiftRight => "shr",
            _ => "",
        };
        let sign = match op {
            B::Equal => "==",
            B::NotEqual => "!=",
            B::Less => "<",
            B::LessEqual => "<=",
            B::Greater => ">",
            B::GreaterEqual => ">=",
            B::And => "&",
            B::ExclusiveOr => "^",
            B::InclusiveOr => "|",
            B::LogicalAnd => "&&",
            B::LogicalOr => "||",
            _ if !call.is_empty() => "",
            other => bail!("{other:?} of {kind}"),
        };
        self.each(h, &[left, right], |v| {
            if call.is_empty() {
                format!("{} {sign} {}", v[0], v[1])
            } else {
                format!("{kind}_{call}({}, {})", v[0], v[1])
            }
        })
    }

    fn math(&self, h: Handle<Expression>, fun: MathFunction, of: &[Handle<Expression>]) -> Result<String> {
        use MathFunction as M;
        let kind = letter(self.shape(of[0])?.0)?;
        let call = match (fun, kind) {
            (M::Abs, 'f' | 'i') => "abs",
            (M::Min, 'i' | 'u') => "min",
            (M::Max, 'i' | 'u') => "max",
            (M::Clamp, 'i' | 'u') => "clamp",
            (M::Floor, 'f') => "floor",
            (M::Ceil, 'f') => "ceil",
            (M::Trunc, 'f') => "trunc",
            (M::ExtractBits, 'i' | 'u') => "extract_bits",
            (M::InsertBits, 'u') => "insert_bits",
            (M::CountOneBits, 'u') => "count_one_bits",
            (M::CountLeadingZeros, 'u') => "count_leading_zeros",
            (M::CountTrailingZeros, 'u') => "count_trailing_zeros",
            (M::Dot4I8Packed, 'u') => "dot4_i8",
            (M::Dot4U8Packed, 'u') => "dot4_u8",
            other => bail!("{other:?} is no function of the contract"),
        };
        self.each(h, of, |v| format!("{kind}_{call}({})", v.join(", ")))
    }

    fn block(&mut self, block: &'a Block) -> Result<()> {
        block.iter().try_for_each(|s| self.statement(s))
    }

    fn indented(&mut self, block: &'a Block) -> Result<()> {
        self.indent += 1;
        self.block(block)?;
        self.indent -= 1;
        Ok(())
    }

    fn statement(&mut self, s: &'a Statement) -> Result<()> {
        match s {
            Statement::Emit(range) => {
                for h in range.clone() {
                    if self.is_pointer(h) {
                        continue;
                    }
                    let line = format!(
                        "const {} {} = {};",
                        self.expression_type(h)?,
                        self.name(h),
                        self.expression(h)?
                    );
                    self.line(&line);
                }
            }
            Statement::Block(b) => {
                self.line("{");
                self.indented(b)?;
                self.line("}");
            }
            Statement::If { condition, accept, reject } => {
                let head = format!("if ({}) {{", self.value(*condition)?);
                self.line(&head);
                self.indented(accept)?;
                if !reject.is_empty() {
                    self.line("} else {");
                    self.indented(reject)?;
                }
                self.line("}");
            }
            Statement::Switch { selector, cases } => self.switch(*selector, cases)?,
            Statement::Loop { body, continuing, break_if } => {
                self.repeat(body, continuing, *break_if)?;
            }
            Statement::Break => self.line("break;"),
            Statement::Continue => {
                let Some(around) = self.loops.last_mut() else { bail!("continue outside of a loop") };
                around.1 = true;
                let line = format!("goto next_{};", around.0);
                self.line(&line);
            }
            Statement::Return { value: None } => self.line("return;"),
            Statement::Return { value: Some(v) } => {
                let line = format!("return {};", self.value(*v)?);
                self.line(&line);
            }
            // One orders both kinds of memory among the invocations of a workgroup.
            Statement::ControlBarrier(b) if (Barrier::WORK_GROUP | Barrier::STORAGE).contains(*b) => {
                self.line("barrier();");
            }
            Statement::Store { pointer, value } => {
                let (place, value) = (self.place(*pointer)?, self.value(*value)?);
                let atomic = matches!(*self.inner(*pointer), TypeInner::Pointer { base, .. }
                    if matches!(self.w.module.types[base].inner, TypeInner::Atomic(_)));
                let line = if atomic {
                    format!("atomic_store(&{place}, {value});")
                } else {
                    format!("{place} = {value};")
                };
                self.line(&line);
            }
            Statement::Atomic { pointer, fun, value, result } => {
                let call = match fun {
                    AtomicFunction::Add => "add",
                    AtomicFunction::And => "and",
                    AtomicFunction::InclusiveOr => "or",
                    AtomicFunction::Min => "min",
                    AtomicFunction::Max => "max",
                    other => bail!("{other:?} of an atomic"),
                };
                let call = format!("atomic_{call}(&{}, {});", self.place(*pointer)?, self.value(*value)?);
                self.call(*result, &call)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let place = self.place(*pointer)?;
                self.line("barrier();");
                self.call(Some(*result), &format!("{place};"))?;
                self.line("barrier();");
            }
            Statement::Call { function, arguments, result } => {
                let called = &self.w.module.functions[*function];
                let used = self.w.bindings(&self.w.info[*function]);
                let mut given: Vec<_> = used.into_iter().map(global_name).collect();
                for &a in arguments {
                    given.push(if self.is_pointer(a) {
                        format!("&{}", self.place(a)?)
                    } else {
                        self.value(a)?
                    });
                }
                let call = format!("{}({});", function_name(called), given.join(", "));
                self.call(*result, &call)?;
            }
            other => bail!("{other:?}"),
        }
        Ok(())
    }

    fn call(&mut self, result: Option<Handle<Expression>>, call: &str) -> Result<()> {
        let line = match result {
            Some(h) => format!("const {} {} = {call}", self.expression_type(h)?, self.name(h)),
            None => call.to_owned(),
        };
        self.line(&line);
        Ok(())
    }

    fn switch(&mut self, selector: Handle<Expression>, cases: &'a [naga::SwitchCase]) -> Result<()> {
        let head = format!("switch ({}) {{", self.value(selector)?);
        self.line(&head);
        for case in cases {
            let label = match case.value {
                naga::SwitchValue::I32(n) => format!("case {}:", literal(Literal::I32(n))?),
                naga::SwitchValue::U32(n) => format!("case {n}u:"),
                naga::SwitchValue::Default => "default:".into(),
            };
            if case.fall_through && case.body.is_empty() {
                self.line(&label);
                continue;
            }
            self.line(&format!("{label} {{"));
            self.indented(&case.body)?;
            self.line(if case.fall_through { "}" } else { "} break;" });
        }
        self.line("}");
        Ok(())
    }

    /// The constant that a loop counts to, if its body begins with a comparison of a variable with one.
    fn counts_to(&self, body: &Block) -> Option<u32> {
        let first = body.iter().find(|s| !matches!(s, Statement::Emit(_)))?;
        let Statement::If { condition, accept, reject } = first else { return None };
        let leaves = accept.is_empty() && matches!(reject.first(), Some(Statement::Break));
        let Expression::Binary { op: BinaryOperator::Less, left, right } = self.f.expressions[*condition]
        else {
            return None;
        };
        let Expression::Load { pointer } = self.f.expressions[left] else { return None };
        let counted = matches!(self.f.expressions[pointer], Expression::LocalVariable(_));
        match self.f.expressions[right] {
            Expression::Literal(Literal::U32(n)) if leaves && counted => Some(n),
            _ => None,
        }
    }

    fn repeat(
        &mut self,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        if self.counts_to(body).is_some_and(|n| n <= UNROLLED) {
            self.line("UNROLL");
        }
        self.line("while (true) {");
        self.indent += 1;
        self.labels += 1;
        self.loops.push((self.labels, false));
        // What a `break_if` or the end of a loop reads of its body must outlive it; loops that count read variables only.
        self.line("{");
        self.indented(body)?;
        self.line("}");
        if let Some((label, true)) = self.loops.pop() {
            self.line(&format!("next_{label}:;"));
        }
        self.block(continuing)?;
        if let Some(end) = break_if {
            let line = format!("if ({}) break;", self.value(end)?);
            self.line(&line);
        }
        self.indent -= 1;
        self.line("}");
        Ok(())
    }
}
