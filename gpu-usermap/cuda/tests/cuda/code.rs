//! Modules, functions, launches.

use std::time::Duration;

use gpunet_cuda::{CopyError, LaunchError, LoadModuleError};

use crate::support::{kernels, on_gpu, spec, u32_param, u64_param};

#[test]
fn a_kernel_computes() {
    on_gpu!(device);
    let buffer = device.alloc(4 * 1024).expect("memory");
    let fill = kernels(&device).function("fill").expect("the kernel");
    println!("{fill:?}");
    let params = vec![u64_param(buffer.ptr()), u32_param(42)];
    // SAFETY: 4 blocks of 256 threads write the 4 KiB.
    let launch = unsafe { device.launch(&[spec(&fill, 4, 256, params)]) }.expect("a launch");
    assert_eq!(launch.wait_timeout(Duration::from_secs(5)), Ok(true));
    assert_eq!(launch.is_finished(), Ok(true));
    let mut last = [0; 4];
    device.read(&buffer, 4092, &mut last).expect("a read");
    assert_eq!(u32::from_ne_bytes(last), 42 + 1023);
}

#[test]
fn a_global_is_found_written_and_read_by_a_kernel() {
    on_gpu!(device);
    let module = kernels(&device);
    let (address, len) = module.global("settings").expect("the global");
    assert!(address != 0 && len == 16);
    device.write_symbol(&module, "settings", &0x1122_3344_5566_7788_u64.to_ne_bytes()).expect("a write");
    let buffer = device.alloc(8).expect("memory");
    let read = module.function("read_settings").expect("the kernel");
    // SAFETY: one thread writes the 8 bytes.
    let launch =
        unsafe { device.launch(&[spec(&read, 1, 1, vec![u64_param(buffer.ptr())])]) }.expect("a launch");
    launch.wait().expect("no fault");
    let mut seen = [0; 8];
    device.read(&buffer, 0, &mut seen).expect("a read");
    assert_eq!(u64::from_ne_bytes(seen), 0x1122_3344_5566_7788);

    let long = device.write_symbol(&module, "settings", &[0; 17]);
    assert_eq!(long, Err(CopyError::OutOfBounds { offset: 0, len: 17, size: 16 }));
    assert!(
        matches!(device.write_symbol(&module, "no_such", &[0]), Err(CopyError::Symbol(error)) if error.name == "no_such")
    );
}

#[test]
fn bad_ptx_brings_the_assemblers_log() {
    on_gpu!(device);
    let bad = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry k() { no_such_instruction; }\n";
    match device.load_module(bad) {
        Err(LoadModuleError::Refused { log, source }) => {
            println!("{source}\n{log}");
            assert!(log.contains("no_such_instruction") || log.contains("line 4"), "{log}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_kernel_is_named() {
    on_gpu!(device);
    let missing = kernels(&device).function("no_such").expect_err("not there");
    assert_eq!((missing.name.as_str(), missing.source.name.as_str()), ("no_such", "CUDA_ERROR_NOT_FOUND"));
    assert!(kernels(&device).function("fill\0").is_err());
}

#[test]
fn two_texts_link_into_one_module() {
    on_gpu!(device);
    let head = ".version 6.4\n.target sm_70\n.address_size 64\n";
    let library = format!("{head}.visible .func (.param .b32 r) seven() {{ st.param.b32 [r], 7; ret; }}\n");
    let user = format!(
        "{head}.extern .func (.param .b32 r) seven();
         .visible .entry put_seven(.param .u64 p_out) {{
             .reg .b32 %r<2>; .reg .b64 %rd<2>;
             ld.param.u64 %rd1, [p_out];
             {{ .param .b32 back; call.uni (back), seven, (); ld.param.b32 %r1, [back]; }}
             st.global.u32 [%rd1], %r1;
             ret;
         }}\n"
    );
    let linked = device.link(&[("library", library.as_bytes()), ("user", user.as_bytes())]).expect("linked");
    let put = linked.function("put_seven").expect("the kernel");
    let buffer = device.alloc(4).expect("memory");
    // SAFETY: one thread writes the 4 bytes.
    let launch =
        unsafe { device.launch(&[spec(&put, 1, 1, vec![u64_param(buffer.ptr())])]) }.expect("a launch");
    launch.wait().expect("no fault");
    let mut seen = [0; 4];
    device.read(&buffer, 0, &mut seen).expect("a read");
    assert_eq!(u32::from_ne_bytes(seen), 7);

    let alone = device.link(&[("user", user.as_bytes())]);
    assert!(
        matches!(&alone, Err(LoadModuleError::Refused { log, .. }) if log.contains("seven")),
        "{alone:?}"
    );
}

/// 200 values that live across a call need more registers than 65536 / 1024 per thread, unless the
/// assembler is told.
#[test]
fn linked_code_runs_in_blocks_of_as_many_threads_as_were_asked_for() {
    const LIVE: usize = 200;
    const THREADS: u32 = 1024;
    on_gpu!(device);
    let head = ".version 6.4\n.target sm_70\n.address_size 64\n";
    let library = format!("{head}.visible .func (.param .b32 r) seven() {{ st.param.b32 [r], 7; ret; }}\n");
    let each = |line: &dyn Fn(usize) -> String| (0..LIVE).map(line).collect::<String>();
    let loads = each(&|i| format!("ld.volatile.global.u32 %v{i}, [%rd1+{}];\n", 4 * i));
    let stores = each(&|i| format!("st.volatile.global.u32 [%rd1+{}], %v{i};\n", 4 * i));
    let user = format!(
        "{head}.extern .func (.param .b32 r) seven();
         .visible .entry hungry(.param .u64 p_out) {{
             .reg .b32 %v<{LIVE}>; .reg .b32 %r<3>; .reg .b64 %rd<4>;
             ld.param.u64 %rd1, [p_out];
             {loads}
             {{ .param .b32 back; call.uni (back), seven, (); ld.param.b32 %r1, [back]; }}
             {stores}
             mov.u32 %r2, %tid.x;
             mul.wide.u32 %rd2, %r2, 4;
             add.u64 %rd3, %rd1, %rd2;
             st.global.u32 [%rd3+{}], %r1;
             ret;
         }}\n",
        4 * LIVE
    );
    let texts = [("library", library.as_bytes()), ("user", user.as_bytes())];
    let plain = device.link(&texts).expect("linked").function("hungry").expect("the kernel");
    println!("without: {:?}", plain.attributes());
    let hungry = device.link_for(&texts, THREADS).expect("linked").function("hungry").expect("the kernel");
    println!("with: {:?}", hungry.attributes());
    assert!(hungry.attributes().max_threads_per_block >= THREADS, "{:?}", hungry.attributes());

    let buffer = device.alloc(4 * (LIVE + THREADS as usize)).expect("memory");
    let values: Vec<u8> = (0..LIVE as u32).flat_map(|value| (3 * value).to_ne_bytes()).collect();
    device.write(&buffer, 0, &values).expect("a copy");
    // SAFETY: every thread writes back what it read of the first words, and its own word after
    // them.
    let launch = unsafe { device.launch(&[spec(&hungry, 1, THREADS, vec![u64_param(buffer.ptr())])]) }
        .expect("a launch");
    launch.wait().expect("no fault");
    let mut seen = vec![0; buffer.len()];
    device.read(&buffer, 0, &mut seen).expect("a read");
    assert_eq!(&seen[..4 * LIVE], &values[..]);
    assert!(seen[4 * LIVE..].chunks_exact(4).all(|word| word == 7_u32.to_ne_bytes()));
}

#[test]
fn launches_that_cannot_work_are_refused_before_they_start() {
    on_gpu!(device);
    let fill = kernels(&device).function("fill").expect("the kernel");
    let both = || vec![u64_param(0), u32_param(0)];
    let launch = |specs: &[_]| {
        // SAFETY: every one is refused; none runs.
        unsafe { device.launch(specs) }.expect_err("refused")
    };
    assert_eq!(launch(&[]), LaunchError::Empty);
    assert!(matches!(launch(&[spec(&fill, 0, 32, both())]), LaunchError::ZeroDimension { .. }));
    assert!(matches!(
        launch(&[spec(&fill, 1, 4096, both())]),
        LaunchError::TooManyThreads { threads: 4096, .. }
    ));
    if device.cuda().driver_version() >= gpunet_cuda::DriverVersion::new(12, 4) {
        let more = launch(&[spec(&fill, 1, 32, vec![u64_param(0), u32_param(0), u32_param(0)])]);
        assert!(matches!(more, LaunchError::ParameterCount { expected: 2, given: 3, .. }), "{more}");
        let wide = launch(&[spec(&fill, 1, 32, vec![u64_param(0), u64_param(0)])]);
        assert!(
            matches!(wide, LaunchError::ParameterSize { parameter: 1, expected: 4, given: 8, .. }),
            "{wide}"
        );
    }
}
