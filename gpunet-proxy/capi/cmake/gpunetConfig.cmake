# gpunet for CMake 3.18 and later: find_package(gpunet).
#
# Targets:
#   gpunet::host         libgpunet.so and gpunet_host.h, for C and C++. Needs neither CUDA nor a GPU to build or to start.
#   gpunet::host_static  the same as libgpunet.a
#   gpunet::device       the headers of the device code (gpunet.h, gpunet.cuh), for CUDA
#
# Variables:
#   gpunet_DEVICE_PTX    the file with gpunet's device code
#
# Functions:
#   gpunet_link_device_code(<target> [MAX_THREADS <n>])
#       Links gpunet's device code into a CUDA executable or shared library when it is built (-rdc). MAX_THREADS is the largest
#       block of its kernels, 256 unless told: more threads leave each fewer registers, in gpunet's functions and in the target's
#       kernels.
#   gpunet_compile_ptx(<target> <file.cu>... [ARCHITECTURE <sm>])
#       Compiles kernels to PTX with relocatable device code, for the program to link with gpunet_DEVICE_PTX when it runs. The
#       custom target <target> has the list of the PTX files in its property GPUNET_PTX.

get_filename_component(_gpunet_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(gpunet_INCLUDE_DIR "${_gpunet_prefix}/include")
set(gpunet_DEVICE_PTX "${_gpunet_prefix}/share/gpunet/ptx/gpunet_device.ptx")

# The library lies in the prefix, wherever its libdir is.
set(_gpunet_libs "${_gpunet_prefix}/lib" "${_gpunet_prefix}/lib64")
if(CMAKE_LIBRARY_ARCHITECTURE)
    list(APPEND _gpunet_libs "${_gpunet_prefix}/lib/${CMAKE_LIBRARY_ARCHITECTURE}")
endif()
unset(_gpunet_shared CACHE)
unset(_gpunet_static CACHE)
find_library(_gpunet_shared NAMES libgpunet.so PATHS ${_gpunet_libs} NO_DEFAULT_PATH)
find_library(_gpunet_static NAMES libgpunet.a PATHS ${_gpunet_libs} NO_DEFAULT_PATH)

foreach(_gpunet_file "${gpunet_INCLUDE_DIR}/gpunet_host.h" "${gpunet_DEVICE_PTX}")
    if(NOT EXISTS "${_gpunet_file}")
        set(gpunet_FOUND FALSE)
        set(gpunet_NOT_FOUND_MESSAGE "${_gpunet_file} is missing: install gpunet again")
        return()
    endif()
endforeach()
if(NOT _gpunet_shared AND NOT _gpunet_static)
    set(gpunet_FOUND FALSE)
    set(gpunet_NOT_FOUND_MESSAGE "there is no libgpunet.so and no libgpunet.a in ${_gpunet_libs}")
    return()
endif()

if(_gpunet_shared AND NOT TARGET gpunet::host)
    add_library(gpunet::host SHARED IMPORTED)
    set_target_properties(gpunet::host PROPERTIES
        IMPORTED_LOCATION "${_gpunet_shared}"
        INTERFACE_INCLUDE_DIRECTORIES "${gpunet_INCLUDE_DIR}")
endif()
if(_gpunet_static AND NOT TARGET gpunet::host_static)
    add_library(gpunet::host_static STATIC IMPORTED)
    set_target_properties(gpunet::host_static PROPERTIES
        IMPORTED_LOCATION "${_gpunet_static}"
        INTERFACE_INCLUDE_DIRECTORIES "${gpunet_INCLUDE_DIR}"
        INTERFACE_LINK_LIBRARIES "gcc_s;util;rt;pthread;m;dl;c")
endif()
if(NOT TARGET gpunet::device)
    add_library(gpunet::device INTERFACE IMPORTED)
    set_target_properties(gpunet::device PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${gpunet_INCLUDE_DIR}")
endif()

function(gpunet_link_device_code target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "MAX_THREADS" "")
    if(NOT CMAKE_CUDA_COMPILER)
        message(FATAL_ERROR "gpunet_link_device_code(${target}): enable the language CUDA first")
    endif()
    if(NOT arg_MAX_THREADS)
        set(arg_MAX_THREADS 256)
    endif()
    # A multiprocessor has 65,536 registers, and a thread may have 255 at most; they come in eights.
    math(EXPR registers "65536 / ${arg_MAX_THREADS} / 8 * 8")
    if(registers GREATER 255)
        set(registers 255)
    endif()
    get_target_property(architectures ${target} CUDA_ARCHITECTURES)
    if(NOT architectures)
        set(architectures "${CMAKE_CUDA_ARCHITECTURES}")
    endif()
    set(gencode)
    foreach(architecture IN LISTS architectures)
        string(REGEX REPLACE "-(real|virtual)$" "" sm "${architecture}")
        if(NOT sm MATCHES "^[0-9]+[af]?$")
            message(FATAL_ERROR
                "gpunet_link_device_code(${target}): CUDA_ARCHITECTURES has ${architecture}; give numbers, such as 80;90")
        endif()
        list(APPEND gencode "--generate-code=arch=compute_${sm},code=sm_${sm}")
    endforeach()
    # nvcc assembles the PTX into an object of the host that holds device code, as those of .cu files do.
    set(object "${CMAKE_CURRENT_BINARY_DIR}/gpunet_device-${target}.o")
    add_custom_command(OUTPUT "${object}"
        COMMAND "${CMAKE_CUDA_COMPILER}" -dc ${gencode} -maxrregcount=${registers} "${gpunet_DEVICE_PTX}" -o "${object}"
        DEPENDS "${gpunet_DEVICE_PTX}"
        COMMENT "gpunet's device code, at most ${registers} registers" VERBATIM)
    set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(${target} PRIVATE "${object}")
    set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION ON CUDA_RESOLVE_DEVICE_SYMBOLS ON)
    if(registers LESS 255)
        target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-maxrregcount=${registers}>")
    endif()
    target_link_libraries(${target} PRIVATE gpunet::device)
endfunction()

function(gpunet_compile_ptx target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "ARCHITECTURE" "")
    if(NOT arg_ARCHITECTURE)
        set(arg_ARCHITECTURE 80)
    endif()
    find_program(GPUNET_NVCC nvcc HINTS "${CUDAToolkit_BIN_DIR}" /usr/local/cuda/bin)
    if(CMAKE_CUDA_COMPILER)
        set(GPUNET_NVCC "${CMAKE_CUDA_COMPILER}")
    endif()
    if(NOT GPUNET_NVCC)
        message(FATAL_ERROR "gpunet_compile_ptx(${target}): nvcc was not found; set GPUNET_NVCC")
    endif()
    set(files)
    foreach(source IN LISTS arg_UNPARSED_ARGUMENTS)
        get_filename_component(source "${source}" ABSOLUTE)
        get_filename_component(name "${source}" NAME_WE)
        set(ptx "${CMAKE_CURRENT_BINARY_DIR}/${name}.ptx")
        add_custom_command(OUTPUT "${ptx}"
            COMMAND "${GPUNET_NVCC}" -ptx -rdc=true -std=c++17 -arch=compute_${arg_ARCHITECTURE} "-I${gpunet_INCLUDE_DIR}"
                    "${source}" -o "${ptx}"
            DEPENDS "${source}" VERBATIM)
        list(APPEND files "${ptx}")
    endforeach()
    add_custom_target(${target} ALL DEPENDS ${files})
    set_target_properties(${target} PROPERTIES GPUNET_PTX "${files}")
endfunction()

set(gpunet_FOUND TRUE)
