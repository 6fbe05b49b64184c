// Polynomials and split constants of elementary.h, by precision.
//
// Written by tools/fit_elementary.py (own weighted Remez fits; classical splits after Cody and
// Waite); do not edit. The power of two behind a table is the largest error of the fit.

#pragma once

#include <array>

namespace qd::ir::elementary {

template <int bits>
struct Coefficients;

template <>
struct Coefficients<32> {
    static constexpr std::array<double, 3> kSin = {-0x1.5555460000000p-3, 0x1.1107300000000p-7,
                                                   -0x1.993d9a0000000p-13};  // 2^-28.0
    static constexpr std::array<double, 3> kCos = {0x1.55554a0000000p-5, -0x1.6c0c560000000p-10,
                                                   0x1.99f2b80000000p-16};  // 2^-33.2
    static constexpr std::array<double, 6> kTan = {
        0x1.5554ca0000000p-2, 0x1.1131c40000000p-3, 0x1.b50c660000000p-5,
        0x1.93a92a0000000p-6, 0x1.6edfc40000000p-9, 0x1.3993fe0000000p-7};  // 2^-25.5
    static constexpr std::array<double, 5> kExp = {0x1.0000000000000p-1, 0x1.5554a80000000p-3,
                                                   0x1.55547e0000000p-5, 0x1.122d820000000p-7,
                                                   0x1.6da1ea0000000p-10};  // 2^-26.1
    static constexpr std::array<double, 6> kExp2 = {
        0x1.62e4300000000p-1, 0x1.ebfbe00000000p-3,  0x1.c6aecc0000000p-5,
        0x1.3b29aa0000000p-7, 0x1.5f49740000000p-10, 0x1.4490960000000p-13};  // 2^-29.0
    static constexpr std::array<double, 3> kLog = {0x1.55557a0000000p-1, 0x1.995e9e0000000p-2,
                                                   0x1.31e62a0000000p-2};  // 2^-30.2
    static constexpr std::array<double, 3> kLogSecond = {0x1.999a000000000p-2, 0x1.2452720000000p-2,
                                                         0x1.dfa4380000000p-3};  // 2^-36.8
    static constexpr std::array<double, 9> kAtan = {
        -0x1.55553e0000000p-2, 0x1.9991fe0000000p-3,  -0x1.2421bc0000000p-3,
        0x1.c09a4c0000000p-4,  -0x1.5835860000000p-4, 0x1.dacd5e0000000p-5,
        -0x1.fed8b00000000p-6, 0x1.65ae920000000p-7,  -0x1.d63f2a0000000p-10};  // 2^-28.5
    static constexpr std::array<double, 5> kAsin = {0x1.5556800000000p-3, 0x1.32c79c0000000p-4,
                                                    0x1.7a2f040000000p-5, 0x1.54bbf80000000p-6,
                                                    0x1.878c7c0000000p-5};  // 2^-26.0
    static constexpr std::array<double, 4> kHalfPi = {0x1.9200000000000p+0, 0x1.fb40000000000p-12,
                                                      0x1.4440000000000p-24, 0x1.68c2340000000p-39};
    static constexpr std::array<double, 3> kHalfPiFused = {
        0x1.921fb60000000p+0, -0x1.777a5c0000000p-25, -0x1.ee59da0000000p-50};
    static constexpr std::array<double, 2> kLn2 = {0x1.62e4000000000p-1, 0x1.7f7d1c0000000p-20};
    static constexpr std::array<double, 2> kHalfPiPair = {0x1.921fb60000000p+0,
                                                          -0x1.777a5c0000000p-25};
    static constexpr std::array<double, 2> kPiPair = {0x1.921fb60000000p+1, -0x1.777a5c0000000p-24};
    static constexpr std::array<double, 2> kLog2e = {0x1.7154760000000p+0, 0x1.4ae0c00000000p-26};
    static constexpr std::array<double, 2> kTwoThirds = {0x1.5555560000000p-1,
                                                         -0x1.5555560000000p-26};
    static constexpr double kTwoOverPi = 0x1.45f3060000000p-1;
    static constexpr double kHugeFrom = 0x1.0000000000000p+13;
    static constexpr double kHugeStep = 0x1.0000000000000p+20;
    // Row j > 0, for arguments from 2^(23 + 20 j): 2^(20 j) 2/pi modulo 4, a sum of four.
    static constexpr double kHuge[6][4] = {
        {0x1.45f3060000000p-1, 0x1.b939100000000p-26, 0x1.529fc20000000p-52, 0x1.d5f47e0000000p-78},
        {0x1.b727220000000p-3, 0x1.529fc20000000p-32, 0x1.d5f47e0000000p-58,
         -0x1.6591200000000p-83},
        {0x1.220a940000000p+1, 0x1.fc27580000000p-24, -0x1.70565a0000000p-51,
         0x1.dc0db60000000p-76},
        {0x1.4fe13a0000000p+1, 0x1.7d1f540000000p-24, -0x1.6447e40000000p-49,
         -0x1.275a9a0000000p-74},
        {0x1.abe8fa0000000p+1, 0x1.34ddc00000000p-24, 0x1.b6c52c0000000p-49,
         -0x1.9b0ef20000000p-74},
        {0x1.a9a6ee0000000p+1, 0x1.b6c52c0000000p-29, -0x1.9b0ef20000000p-54,
         0x1.041fe60000000p-80}};
};

template <>
struct Coefficients<64> {
    static constexpr std::array<double, 6> kSin = {
        -0x1.5555555555548p-3, 0x1.111111110f740p-7,   -0x1.a01a019be88afp-13,
        0x1.71de3552bda38p-19, -0x1.ae5e4850cc469p-26, 0x1.5d8a13ac1cbdfp-33};  // 2^-57.9
    static constexpr std::array<double, 6> kCos = {
        0x1.555555555554bp-5,   -0x1.6c16c16c1502cp-10, 0x1.a01a019c8f4b1p-16,
        -0x1.27e4f7f011a2dp-22, 0x1.1ee9d9b52ed73p-29,  -0x1.8fa4e3891755dp-37};  // 2^-64.1
    static constexpr std::array<double, 14> kTan = {
        0x1.55555555554d2p-2,   0x1.111111111a370p-3,   0x1.ba1ba1b2f2cc8p-5,
        0x1.664f49ecd7d52p-6,   0x1.226e0b07cf8dep-7,   0x1.d6da3547f25a5p-9,
        0x1.7d4f6c8c5ecddp-10,  0x1.385cd423dd2c7p-11,  0x1.ce0067592ab61p-13,
        0x1.272406ad6eb64p-13,  -0x1.0e49133c663d0p-15, 0x1.8d561baddb98fp-14,
        -0x1.900523d1dc784p-15, 0x1.6935fc12d32bbp-16};  // 2^-55.8
    static constexpr std::array<double, 11> kExp = {
        0x1.0000000000000p-1,  0x1.5555555555559p-3,  0x1.555555555555bp-5,  0x1.111111110f484p-7,
        0x1.6c16c16c1411fp-10, 0x1.a01a01b0db719p-13, 0x1.a01a01b1b338fp-16, 0x1.71ddf5ac3ce03p-19,
        0x1.27e4c38741a75p-22, 0x1.af63bb32bb98cp-26, 0x1.1f989efa99155p-29};  // 2^-61.6
    static constexpr std::array<double, 11> kExp2 = {
        0x1.62e42fefa39efp-1,  0x1.ebfbdff82c5a5p-3,  0x1.c6b08d704a0d7p-5,  0x1.3b2ab6fb9fe0ep-7,
        0x1.5d87fe78a0ce3p-10, 0x1.4309130f75f78p-13, 0x1.ffcbfc7ca8e69p-17, 0x1.62bfc610ab4bap-20,
        0x1.b524cd22f20f2p-24, 0x1.e61dfe48c5c1bp-28, 0x1.ea196d9039726p-32};  // 2^-58.0
    static constexpr std::array<double, 7> kLog = {
        0x1.5555555555593p-1, 0x1.999999997fb5dp-2, 0x1.24924942150a6p-2, 0x1.c71c51ea3d3edp-3,
        0x1.746645ad3f876p-3, 0x1.39a10284c0b5ap-3, 0x1.2f0d00d15f193p-3};  // 2^-59.5
    static constexpr std::array<double, 7> kLogSecond = {
        0x1.9999999999b32p-2, 0x1.2492492457874p-2, 0x1.c71c722dda128p-3, 0x1.745ce9b9dec08p-3,
        0x1.3b1ef3d44686bp-3, 0x1.0f7f2d61990f1p-3, 0x1.0e49bb0a55862p-3};  // 2^-66.3
    static constexpr std::array<double, 19> kAtan = {
        -0x1.555555555544cp-2,  0x1.9999999984114p-3,  -0x1.2492491fa245bp-3, 0x1.c71c709e28da5p-4,
        -0x1.745d02321f642p-4,  0x1.3b12b2f5b283fp-4,  -0x1.11089d67423f6p-4, 0x1.e1781b959d29ap-5,
        -0x1.ad32cc447b964p-5,  0x1.7ee42da413cccp-5,  -0x1.4f45a42fb19c0p-5, 0x1.1716c5b23a2dep-5,
        -0x1.a7292f0a73d95p-6,  0x1.162edf72d0acfp-6,  -0x1.2cfb82c8e76b6p-7, 0x1.f975f0762ad15p-9,
        -0x1.31313c652d504p-10, 0x1.d3c81157f2058p-13, -0x1.53f0e738da968p-16};  // 2^-55.0
    static constexpr std::array<double, 13> kAsin = {
        0x1.55555555556d8p-3, 0x1.33333333014c6p-4,  0x1.6db6db91b5406p-5, 0x1.f1c70f63342b8p-6,
        0x1.6e8d07ac7fd69p-6, 0x1.1c36629a09e81p-6,  0x1.cbd71bae1fd7ep-7, 0x1.685c1a53eaf30p-7,
        0x1.a6560a19882bcp-7, -0x1.ec24fdd37c82bp-9, 0x1.3d39abc6d671bp-5, -0x1.65132dfa340f6p-5,
        0x1.77f3f26421ddcp-5};  // 2^-56.1
    static constexpr std::array<double, 4> kHalfPi = {0x1.921fb40000000p+0, 0x1.4442d00000000p-24,
                                                      0x1.8469880000000p-48, 0x1.8cc51701b839ap-72};
    static constexpr std::array<double, 3> kHalfPiFused = {
        0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
    static constexpr std::array<double, 2> kLn2 = {0x1.62e42fefa3800p-1, 0x1.ef35793c76730p-45};
    static constexpr std::array<double, 2> kHalfPiPair = {0x1.921fb54442d18p+0,
                                                          0x1.1a62633145c07p-54};
    static constexpr std::array<double, 2> kPiPair = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53};
    static constexpr std::array<double, 2> kLog2e = {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56};
    static constexpr std::array<double, 2> kTwoThirds = {0x1.5555555555555p-1,
                                                         0x1.5555555555555p-55};
    static constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
    static constexpr double kHugeFrom = 0x1.0000000000000p+29;
    static constexpr double kHugeStep = 0x1.0000000000000p+48;
    // Row j > 0, for arguments from 2^(52 + 48 j): 2^(48 j) 2/pi modulo 4, a sum of four.
    static constexpr double kHuge[21][4] = {{0x1.45f306dc9c883p-1, -0x1.6b01ec5417056p-55,
                                             -0x1.6447e493ad4cep-109, 0x1.e21c820ff28b2p-163},
                                            {0x1.529fc2757d1f5p-4, 0x1.a6ee06db14acdp-59,
                                             -0x1.8778df7c035d4p-113, 0x1.d5ef5de2b0db9p-167},
                                            {0x1.f534ddc0db629p+0, 0x1.664f10e4107f9p-54,
                                             0x1.163abdebbc562p-108, -0x1.236e4716f6c8bp-162},
                                            {0x1.4acc9e21c8210p+1, -0x1.ae9c5421443aap-56,
                                             0x1.b7246e3a424ddp-112, 0x1.700324977504fp-167},
                                            {0x1.fe5163abdebbcp+0, 0x1.586dc91b8e909p-54,
                                             0x1.ba5c00c925dd4p-109, 0x1.3a32439fc3bd6p-165},
                                            {0x1.e2b0db92371d2p+1, 0x1.26e9700324977p-55,
                                             0x1.413a32439fc3cp-109, -0x1.4e34ed658c117p-164},
                                            {0x1.2126e97003249p+1, 0x1.dd413a32439fcp-53,
                                             0x1.deb1cb129a73fp-108, -0x1.77dca0ad144bbp-164},
                                            {0x1.2eea09d1921d0p+0, -0x1.e214e34ed658cp-56,
                                             -0x1.177dca0ad144cp-112, 0x1.213a671c09ad1p-166},
                                            {0x1.fc3bd63962535p-1, -0x1.822efb9415a29p-57,
                                             0x1.a24274ce38136p-111, -0x1.741037d8cdc54p-165},
                                            {0x1.a73ee88235f53p+0, -0x1.44bb7b16638fep-56,
                                             0x1.ad17df904e647p-110, 0x1.639835339f49dp-164},
                                            {0x1.2ebb4484e99c7p+0, 0x1.35a2fbf209cc9p-59,
                                             -0x1.4e33e566305b2p-115, 0x1.08bf177bf2507p-169},
                                            {0x1.c09ad17df904ep-2, 0x1.91d639835339fp-56,
                                             0x1.272117e2ef7e5p-110, -0x1.7c4e007680022p-164},
                                            {0x1.3991d63983534p+0, -0x1.82d8dee81d108p-54,
                                             -0x1.b5f13801da001p-110, 0x1.e05980fef2f12p-164},
                                            {0x1.9cfa4e422fc5ep+1, -0x1.036be27003b40p-55,
                                             -0x1.0fd33f8086877p-115, -0x1.d297d64b824b2p-170},
                                            {0x1.defc941d8ffc5p+1, -0x1.00043f4cfe022p-53,
                                             0x1.788c5ad053690p-107, -0x1.25930261b069fp-161},
                                            {0x1.2fffbc0b301fep-1, -0x1.a1dce94beb25cp-57,
                                             -0x1.25930261b069fp-113, 0x1.b74f463f669e6p-168},
                                            {0x1.f79788c5ad053p+1, 0x1.a3eda6cfd9e50p-53,
                                             -0x1.a7b24585ce04dp-107, 0x1.3cbfd45aea4f7p-161},
                                            {0x1.368fb69b3f679p+1, 0x1.f2c26dd3d18fep-54,
                                             -0x1.961a015d28ad8p-108, -0x1.14e050683a131p-162},
                                            {0x1.93e584dba7a32p+1, -0x1.32c3402ba515bp-57,
                                             -0x1.14e050683a131p-114, 0x1.0739f78a5292fp-168},
                                            {0x1.1fb34f2ff516cp+1, -0x1.5b08a7028341dp-53,
                                             -0x1.30be31821d6b6p-110, 0x1.2ea6bfb5fb120p-164},
                                            {0x1.7527bac7ebe5fp+0, 0x1.7b3d0739f78a5p-56,
                                             0x1.497535fdafd89p-111, -0x1.ca8bdea7f33eep-170}};
};

}  // namespace qd::ir::elementary
