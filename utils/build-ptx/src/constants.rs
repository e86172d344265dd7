//! Which registers hold an address inside a variable of the module.
//!
//! A constant of the program, such as a string, is such a variable, and the compiler loads it by
//! non-coherent loads. PTX does not tell which variables are constants, and need not: the compiler
//! never loads another variable this way.

use std::collections::HashSet;

use crate::text::{Function, Instruction, Module};

/// The addresses of a function that lie inside private variables of its module.
pub struct Addresses<'a> {
    module: &'a Module,
    registers: HashSet<&'a str>,
}

impl<'a> Addresses<'a> {
    /// Follows the addresses through `function`.
    #[must_use]
    pub fn new(module: &'a Module, function: &'a Function) -> Self {
        let definitions: Vec<_> = function.instructions.iter().filter_map(definition).collect();
        // A register counts as such an address until one of its definitions shows another value. So
        // an address that a loop increments, which is defined by itself, remains one.
        let mut found =
            Self { module, registers: definitions.iter().map(|&(register, ..)| register).collect() };
        loop {
            let others: HashSet<&str> = definitions
                .iter()
                .filter(|(_, opcode, sources)| !found.holds(opcode, sources))
                .map(|&(register, ..)| register)
                .collect();
            let before = found.registers.len();
            found.registers.retain(|register| !others.contains(register));
            if found.registers.len() == before {
                return found;
            }
        }
    }

    /// Returns whether the instruction's memory operand lies inside a private variable.
    #[must_use]
    pub fn contain(&self, instruction: &Instruction) -> bool {
        let inside = instruction.operands.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        inside.is_some_and(|(address, _)| self.is_inside(address))
    }

    /// Returns whether an instruction with these sources computes such an address.
    fn holds(&self, opcode: &str, sources: &[&str]) -> bool {
        let mut inside = sources.iter().map(|source| self.is_inside(source));
        match opcode.split('.').next() {
            Some("mov" | "cvta") => inside.next() == Some(true),
            Some("selp") => inside.take(2).all(|inside| inside),
            // An address and an offset.
            Some("add" | "or" | "mad") => inside.any(|inside| inside),
            _ => false,
        }
    }

    /// Returns whether `address`, a register or a name with or without an offset, is such an
    /// address.
    fn is_inside(&self, address: &str) -> bool {
        let base = address.split('+').next().unwrap_or_default().trim();
        self.registers.contains(base) || self.module.private_variables.contains(base)
    }
}

/// The register that an instruction defines, its opcode, and its sources.
fn definition(instruction: &Instruction) -> Option<(&str, &str, Vec<&str>)> {
    let mut operands = instruction.operands.split(',').map(str::trim);
    let register = operands.next().filter(|first| first.starts_with('%'))?;
    Some((register, &instruction.opcode, operands.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether the last instruction of a function with this body loads from a private
    /// variable.
    fn loads_a_constant(body: &str) -> bool {
        let text = format!(
            ".global .align 8 .b8 table[32];\n.visible .global .align 8 .u64 seen;\n\
             .func f(.param .b64 f_param_0)\n{{\n{body}\n}}\n"
        );
        let module = Module::parse(&text);
        let function = &module.functions[0];
        Addresses::new(&module, function).contain(function.instructions.last().expect("a load"))
    }

    #[test]
    fn a_name_with_an_offset_is_a_constant() {
        assert!(loads_a_constant("ld.global.nc.b8 %rs1, [table+3];"));
    }

    #[test]
    fn an_address_is_followed_through_arithmetic() {
        assert!(loads_a_constant(
            "ld.param.b64 %rd1, [f_param_0]; mov.b64 %rd2, table; cvta.global.u64 %rd3, %rd2; add.s64 %rd4, %rd1, %rd3; \
             ld.global.nc.b8 %rs1, [%rd4+1];"
        ));
    }

    #[test]
    fn an_address_that_a_loop_counts_up_stays_a_constant() {
        assert!(loads_a_constant(
            "mov.b64 %rd1, table;\n$L1:\nld.b8 %rs2, [%rd1];\nadd.s64 %rd1, %rd1, 1;\n@%p1 bra $L1;\nld.global.nc.b8 %rs1, [%rd1];"
        ));
    }

    #[test]
    fn a_parameter_is_no_constant() {
        assert!(!loads_a_constant("ld.param.b64 %rd1, [f_param_0]; ld.global.nc.b8 %rs1, [%rd1];"));
    }

    #[test]
    fn what_may_be_a_parameter_is_no_constant() {
        assert!(!loads_a_constant(
            "mov.b64 %rd1, table; ld.param.b64 %rd2, [f_param_0]; selp.b64 %rd3, %rd1, %rd2, %p1; ld.global.nc.b8 %rs1, [%rd3];"
        ));
        assert!(!loads_a_constant(
            "mov.b64 %rd1, table; @%p1 bra $L1; ld.param.b64 %rd1, [f_param_0];\n$L1:\nld.global.nc.b8 %rs1, [%rd1];"
        ));
    }

    #[test]
    fn an_address_in_a_constant_is_no_constant() {
        assert!(!loads_a_constant("ld.global.nc.b64 %rd1, [table]; ld.global.nc.b8 %rs1, [%rd1];"));
    }

    #[test]
    fn a_counter_is_no_address() {
        assert!(!loads_a_constant(
            "mov.b64 %rd1, 0;\n$L1:\nadd.s64 %rd1, %rd1, 1;\nld.global.nc.b8 %rs1, [%rd1];"
        ));
    }

    #[test]
    fn a_visible_variable_may_be_written_by_the_host() {
        assert!(!loads_a_constant("ld.global.nc.b64 %rd1, [seen];"));
    }
}
