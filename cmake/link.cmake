# How native objects are linked: by lld of our LLVM version, with a private C++ runtime, exporting
# only what is named, so that they live in one process with any other LLVM or libstdc++.

# gcc takes the first ld.lld on PATH, which may be another version's: -B names the folder.
find_program(QD_LLD ld.lld
    HINTS "/usr/lib/llvm-${QD_LLVM_VERSION}/bin" NO_DEFAULT_PATH)
if(NOT QD_LLD)
    find_program(QD_LLD ld.lld REQUIRED)
endif()
get_filename_component(QD_LLD_DIR "${QD_LLD}" DIRECTORY)

function(qd_use_lld target)
    target_link_options(${target} PRIVATE "-B${QD_LLD_DIR}" -fuse-ld=lld)
endfunction()

# No identical code folding: lld folds the cold halves of functions with equal code whose stack frames
# differ, keeps the unwind entry of one, and an exception thrown from another ends the process.
#
# qd_link_native_object(target exported): `exported` is a glob of symbol names.
function(qd_link_native_object target exported)
    qd_use_lld(${target})
    set(script "${PROJECT_BINARY_DIR}/generated/${target}.map")
    file(WRITE "${script}.new" "{ global: ${exported}; local: *; };\n")
    configure_file("${script}.new" "${script}" COPYONLY)
    target_link_options(${target} PRIVATE
        -Wl,--gc-sections -Wl,--build-id -Wl,-O1
        "-Wl,--version-script=${script}")
    # Sanitizers intercept throwing, which they look for in the shared C++ runtime, and name lines.
    if(NOT QD_SANITIZE)
        target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
        if(CMAKE_BUILD_TYPE STREQUAL "Release")
            target_link_options(${target} PRIVATE -s)
        endif()
    endif()
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${script}")
endfunction()
