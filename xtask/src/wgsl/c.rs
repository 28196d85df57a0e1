//! Kernels as C++ for the compilers of CUDA and HIP, from naga's form of them.
//!
//! The text says only what is to be computed. Every operation that a compiler could read in more than one way (products and
//! sums of floats, integers that wrap, shifts, conversions) is a call of `kernels/prelude.h`, which says how each compiler is
//! made to do what the contract wants. What has no place in the contract (fused operations, functions of a library, minima of
//! floats, where NaN has no one meaning) is refused.

mod body;

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, ArraySize, BuiltIn, Function, GlobalVariable, Handle, Literal, Module, ScalarKind,
    StorageAccess, Type, TypeInner,
};

use self::body::Body;

/// Bytes of parameters of a kernel at most.
const PARAMETER_BYTES: u32 = 128;

/// The text of a kernel, with bindings as parameters in the order of their numbers, those that it does not use, too. The
/// function is called `redraft_` and the name, since compilers have functions of their own.
pub(super) fn write(name: &str, module: &Module, info: &ModuleInfo, bindings: usize) -> Result<String> {
    let [entry] = &module.entry_points[..] else { bail!("{name}: one entry point is expected") };
    let mut w = Writer { module, info, out: String::new() };
    w.out += "#include \"prelude.h\"\n\n";
    w.structs().with_context(|| name.to_owned())?;
    w.workgroup_memory().with_context(|| name.to_owned())?;
    for (handle, f) in module.functions.iter() {
        let what = || format!("{name}: {}", f.name.as_deref().unwrap_or("?"));
        w.function(f, &info[handle]).with_context(what)?;
    }
    w.kernel(name, entry, info.get_entry_point(0), bindings).with_context(|| name.to_owned())?;
    Ok(w.out)
}

struct Writer<'a> {
    module: &'a Module,
    info: &'a ModuleInfo,
    out: String,
}

fn scalar(s: naga::Scalar) -> Result<&'static str> {
    Ok(match (s.kind, s.width) {
        (ScalarKind::Float, 4) => "float",
        (ScalarKind::Sint, 4) => "int",
        (ScalarKind::Uint, 4) => "unsigned",
        (ScalarKind::Bool, _) => "bool",
        other => bail!("numbers of type {other:?}"),
    })
}

/// How names begin and end that say what kind of number an operation of the prelude has.
fn letter(kind: ScalarKind) -> Result<char> {
    Ok(match kind {
        ScalarKind::Float => 'f',
        ScalarKind::Sint => 'i',
        ScalarKind::Uint => 'u',
        ScalarKind::Bool => 'b',
        other => bail!("numbers of kind {other:?}"),
    })
}

fn literal(l: Literal) -> Result<String> {
    Ok(match l {
        Literal::F32(x) => format!("{x:?}f"),
        Literal::U32(x) => format!("{x}u"),
        Literal::I32(i32::MIN) => "(-2147483647 - 1)".into(),
        Literal::I32(x) => x.to_string(),
        Literal::Bool(x) => x.to_string(),
        other => bail!("the literal {other:?}"),
    })
}

impl<'a> Writer<'a> {
    fn type_name(&self, inner: &TypeInner) -> Result<String> {
        Ok(match *inner {
            TypeInner::Scalar(s) | TypeInner::Atomic(s) => scalar(s)?.into(),
            TypeInner::Vector { size, scalar: s } => format!("Vec{}<{}>", size as u8, scalar(s)?),
            TypeInner::Array { base, size: ArraySize::Constant(n), .. } => {
                format!("Array<{}, {n}>", self.named_type(base)?)
            }
            TypeInner::Pointer { base, .. } => format!("{}*", self.named_type(base)?),
            ref other => bail!("values of type {other:?}"),
        })
    }

    fn named_type(&self, ty: Handle<Type>) -> Result<String> {
        let t = &self.module.types[ty];
        match (&t.inner, &t.name) {
            (TypeInner::Struct { .. }, Some(name)) => Ok(format!("{name}_")),
            (inner, _) => self.type_name(inner),
        }
    }

    fn structs(&mut self) -> Result<()> {
        for (handle, t) in self.module.types.iter() {
            let TypeInner::Struct { members, span } = &t.inner else { continue };
            writeln!(self.out, "struct {} {{", self.named_type(handle)?)?;
            for (i, m) in members.iter().enumerate() {
                // Words one after the other lie in memory as WGSL has them.
                let word = matches!(self.module.types[m.ty].inner, TypeInner::Scalar(s) if s.width == 4);
                let name = m.name.as_deref().unwrap_or("?");
                if !word || m.offset != 4 * i as u32 || *span != 4 * members.len() as u32 {
                    bail!("structures are of words only, without gaps: {name}");
                }
                writeln!(self.out, "    {} {name}_;", self.named_type(m.ty)?)?;
            }
            self.out += "};\n\n";
        }
        Ok(())
    }

    fn workgroup_memory(&mut self) -> Result<()> {
        for (_, g) in self.module.global_variables.iter() {
            match g.space {
                AddressSpace::WorkGroup => {
                    let ty = self.named_type(g.ty)?;
                    writeln!(self.out, "WORKGROUP {ty} {};", global_name(g))?;
                }
                AddressSpace::Uniform | AddressSpace::Storage { .. } => {}
                other => bail!("{} lies in {other:?}", global_name(g)),
            }
        }
        Ok(())
    }

    /// Bindings that a function uses, in their order.
    fn bindings(&self, info: &FunctionInfo) -> Vec<&'a GlobalVariable> {
        let used = self.module.global_variables.iter().filter(|(h, _)| !info[*h].is_empty());
        let mut list: Vec<_> = used.map(|(_, g)| g).filter(|g| g.binding.is_some()).collect();
        list.sort_by_key(|g| g.binding.as_ref().map(|b| b.binding));
        list
    }

    fn binding_parameter(&self, g: &GlobalVariable, by_value: bool) -> Result<String> {
        let name = global_name(g);
        if g.space == AddressSpace::Uniform {
            let ty = self.named_type(g.ty)?;
            return Ok(if by_value { format!("{ty} {name}") } else { format!("const {ty}& {name}") });
        }
        let element = match self.module.types[g.ty].inner {
            TypeInner::Array { base, size: ArraySize::Dynamic, .. } => base,
            _ => g.ty,
        };
        let writable =
            matches!(g.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
        let constant = if writable { "" } else { "const " };
        Ok(format!("{constant}{}* RESTRICT {name}", self.named_type(element)?))
    }

    fn function(&mut self, f: &'a Function, info: &'a FunctionInfo) -> Result<()> {
        let result = f.result.as_ref().map_or(Ok("void".into()), |r| self.named_type(r.ty))?;
        let mut parameters = Vec::new();
        for g in self.bindings(info) {
            parameters.push(self.binding_parameter(g, false)?);
        }
        for (i, a) in f.arguments.iter().enumerate() {
            parameters.push(format!("{} {}", self.named_type(a.ty)?, argument_name(f, i)));
        }
        writeln!(self.out, "DEVICE {result} {}({}) {{", function_name(f), parameters.join(", "))?;
        Body::new(self, f, info).write(&[])?;
        self.out += "}\n\n";
        Ok(())
    }

    fn kernel(
        &mut self,
        name: &str,
        entry: &'a naga::EntryPoint,
        info: &'a FunctionInfo,
        bindings: usize,
    ) -> Result<()> {
        let f = &entry.function;
        let [x, y, z] = entry.workgroup_size;
        let mut parameters = Vec::new();
        // How the host reads each of them from the place that a driver is given.
        let mut arguments = Vec::new();
        for i in 0..bindings {
            let bound = |g: &&GlobalVariable| g.binding.is_some_and(|b| b.binding as usize == i);
            let Some(g) = self.module.global_variables.iter().map(|(_, g)| g).find(bound) else {
                parameters.push(format!("const void* unused_{i}"));
                arguments.push(format!("*(const void**)a[{i}]"));
                continue;
            };
            if g.space == AddressSpace::Uniform {
                let bytes = self.module.types[g.ty].inner.size(self.module.to_ctx());
                if bytes > PARAMETER_BYTES {
                    bail!("{bytes} bytes of parameters, at most {PARAMETER_BYTES} are passed");
                }
            }
            let parameter = self.binding_parameter(g, true)?;
            let ty = parameter.trim_end_matches(&global_name(g)).replace("RESTRICT", "");
            arguments.push(format!("*({}*)a[{i}]", ty.trim()));
            parameters.push(parameter);
        }
        let mut first = Vec::new();
        for (i, a) in f.arguments.iter().enumerate() {
            let value = match a.binding {
                Some(naga::Binding::BuiltIn(BuiltIn::WorkGroupId)) => "group_id()".into(),
                Some(naga::Binding::BuiltIn(BuiltIn::NumWorkGroups)) => {
                    format!("group_count({x}u, {y}u, {z}u)")
                }
                Some(naga::Binding::BuiltIn(BuiltIn::LocalInvocationId)) => "local_id()".into(),
                Some(naga::Binding::BuiltIn(BuiltIn::LocalInvocationIndex)) => {
                    format!("local_index({x}u, {y}u)")
                }
                Some(naga::Binding::BuiltIn(BuiltIn::GlobalInvocationId)) => {
                    format!("global_id({x}u, {y}u, {z}u)")
                }
                ref other => bail!("an argument that is {other:?}"),
            };
            first.push(format!("{} {} = {value};", self.named_type(a.ty)?, argument_name(f, i)));
        }
        writeln!(self.out, "KERNEL({}) redraft_{name}({}) {{", x * y * z, parameters.join(", "))?;
        Body::new(self, f, info).write(&first)?;
        self.out += "}\n";
        writeln!(self.out, "\nON_HOST(redraft_{name}, {})", arguments.join(", "))?;
        Ok(())
    }
}

fn global_name(g: &GlobalVariable) -> String {
    format!("{}_", g.name.as_deref().unwrap_or("global"))
}

fn function_name(f: &Function) -> String {
    format!("{}_", f.name.as_deref().unwrap_or("function"))
}

fn argument_name(f: &Function, i: usize) -> String {
    format!("{}_a{i}", f.arguments[i].name.as_deref().unwrap_or("argument"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(head: &str, body: &str) -> Result<String> {
        let wgsl = format!(
            "struct P {{ a: u32, b: f32 }}
            @group(0) @binding(0) var<uniform> p: P;
            @group(0) @binding(2) var<storage, read_write> x: array<f32>;
            @group(0) @binding(3) var<storage, read_write> n: array<i32>;
            {head}
            @compute @workgroup_size(8, 2) fn main(@builtin(local_invocation_index) at: u32) {{ {body} }}"
        );
        let module = naga::front::wgsl::parse_str(&wgsl).unwrap();
        let info = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        )
        .validate(&module)
        .unwrap();
        write("k", &module, &info, 4)
    }

    #[test]
    fn every_operation_is_a_call_of_the_prelude() {
        let made =
            text("", "x[at] = x[0] * p.b + x[1] - -x[2]; n[at] = (n[0] + n[1]) << (p.a + 3u);").unwrap();
        for call in ["f_mul(", "f_add(", "f_sub(", "f_neg(", "i_add(", "i_shl(", "u_add("] {
            assert_eq!(made.matches(call).count(), 1, "{call} in\n{made}");
        }
        // Nothing is left to the language but indices, loads and stores.
        let code = made.split_once("KERNEL").unwrap().1.split_once("ON_HOST").unwrap().0;
        assert!(!code.contains(" + ") && !code.contains(" << ") && !code.contains(" - "), "{code}");
    }

    #[test]
    fn bindings_keep_their_places() {
        let made = text("", "x[at] = 1.0; n[0] = 0;").unwrap();
        let parameters = "redraft_k(P_ p_, const void* unused_1, float* RESTRICT x_, int* RESTRICT n_) {";
        assert!(made.contains(&format!("KERNEL(16) {parameters}")), "{made}");
        assert!(
            made.contains(
                "ON_HOST(redraft_k, *(P_*)a[0], *(const void**)a[1], *(float**)a[2], *(int**)a[3])"
            )
        );
    }

    #[test]
    fn functions_are_given_the_bindings_that_they_use() {
        let head =
            "fn at_(i: u32) -> f32 { return x[i]; } fn twice(i: u32) -> f32 { return at_(i) + at_(i); }";
        let made = text(head, "x[at] = twice(p.a);").unwrap();
        assert!(made.contains("DEVICE float twice_(float* RESTRICT x_, unsigned i_a0)"), "{made}");
        assert!(made.contains("twice_(x_, "), "{made}");
    }

    #[test]
    fn loops_that_count_to_little_are_unrolled() {
        let to =
            |end: &str| text("", &format!("for (var i = 0u; i < {end}; i++) {{ x[i] = 1.0; }}")).unwrap();
        assert_eq!(to("16u").matches("UNROLL").count(), 1);
        assert_eq!(to("17u").matches("UNROLL").count(), 0);
        assert_eq!(to("p.a").matches("UNROLL").count(), 0);
    }

    #[test]
    fn the_end_of_a_loop_is_not_left_out() {
        let made =
            text("", "for (var i = 0u; i < p.a; i++) { if x[i] == 0.0 { continue; } x[i] = 1.0; }").unwrap();
        let jump = made.find("goto next_1;").unwrap();
        let label = made.find("next_1:;").unwrap();
        assert!(jump < label && label < made.rfind("u_add(").unwrap(), "{made}");
    }

    #[test]
    fn what_is_not_in_the_contract_is_refused() {
        for (body, why) in [
            ("x[0] = fma(x[1], x[2], x[3]);", "Fma"),
            ("x[0] = exp(x[1]);", "Exp"),
            ("x[0] = min(x[1], x[2]);", "Min"),
            ("x[0] = sqrt(x[1]);", "Sqrt"),
            ("x[0] = x[1] % x[2];", "Modulo"),
            ("x[0] = f32(arrayLength(&x));", "ArrayLength"),
        ] {
            let e = format!("{:#}", text("", body).unwrap_err());
            assert!(e.contains(why), "{body}: {e}");
        }
        let e = format!("{:#}", text("var<private> q: u32;", "q = 1u; n[0] = i32(q);").unwrap_err());
        assert!(e.contains("Private"), "{e}");
        let e =
            format!("{:#}", text("struct Q { v: vec3<f32>, w: f32 }", "var q: Q; x[0] = q.w;").unwrap_err());
        assert!(e.contains("words only"), "{e}");
    }
}
