//! Canonical JSON against what Python 3.11 wrote, and hashes that other programs have stored.

use rowmill::fingerprint::{canonical_json, sha256_hex};
use serde_json::json;

/// Bits of a float, and what Python 3.11 wrote for it.
const FLOATS: &[(u64, &str)] = &[
    (0x0000_0000_0000_0000, "0.0"),
    (0x8000_0000_0000_0000, "-0.0"),
    (0x3ff0_0000_0000_0000, "1.0"),
    (0xbff0_0000_0000_0000, "-1.0"),
    (0x3fb9_9999_9999_999a, "0.1"),
    (0x3fd5_5555_5555_5555, "0.3333333333333333"),
    (0x4059_0000_0000_0000, "100.0"),
    (0x430c_6bf5_2634_0000, "1000000000000000.0"),
    (0x4341_c379_37e0_8000, "1e+16"),
    (0x4376_3457_85d8_a000, "1e+17"),
    (0x437b_69b4_ba63_0f35, "1.2345678901234568e+17"),
    (0x4340_0000_0000_0000, "9007199254740992.0"),
    (0x4480_f0cf_064d_d592, "1e+22"),
    (0x444b_1ae4_d6e2_ef50, "1e+21"),
    (0x7e41_eb2d_6600_5835, "1.5e+300"),
    (0x0000_0000_0000_0001, "5e-324"),
    (0x0010_0000_0000_0000, "2.2250738585072014e-308"),
    (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
    (0x3f1a_36e2_eb1c_432d, "0.0001"),
    (0x3ee4_f8b5_88e3_68f1, "1e-05"),
    (0x3f20_2e4b_6ce5_dc68, "0.00012345"),
    (0x3ee9_e3ab_e16f_c70d, "1.2345e-05"),
    (0x4341_c379_37e0_7fff, "9999999999999998.0"),
    (0x4004_0000_0000_0000, "2.5"),
    (0x54b2_49ad_2594_c37d, "1e+100"),
    (0xbe7a_d7f2_9abc_af48, "-1e-07"),
    (0x3fd3_3333_3333_3334, "0.30000000000000004"),
    (0x4011_6666_6666_6666, "4.35"),
    (0x4340_0000_0000_0000, "9007199254740992.0"),
    (0x3ddb_7cdf_d9d7_bdbb, "1e-10"),
    (0x40c8_1cd6_c8b4_3958, "12345.678"),
    (0x91b7_584a_2265_b1f5, "-2.522753946247637e-223"),
    (0xcd61_3e30_d8f1_6adf, "-5.674664918136216e+64"),
    (0x1027_c4d1_c386_bbc4, "7.654927133881691e-231"),
    (0x1e2f_eb89_414c_343c, "2.7715077941825975e-163"),
    (0xc2ce_6f44_7ed4_d57b, "-66926478731690.96"),
    (0x78e5_1061_7311_d8a3, "2.2790121708605243e+274"),
    (0x612e_7696_a6ce_cc1b, "1.3383932992236106e+160"),
    (0x35bf_992d_c9e9_c616, "8.445496795513092e-50"),
    (0x7ce4_2c82_1807_2e8c, "4.026380313612261e+293"),
    (0xe4b0_6ce6_0741_c7a8, "-1.039999246087972e+177"),
    (0x63ca_828d_d5f4_b3b2, "5.122439992692798e+172"),
    (0x9b81_0e76_6ec9_d286, "-3.367304008780077e-176"),
    (0xc464_7159_c324_c985, "-3.0168212434893705e+21"),
    (0xb222_1a58_008a_05a6, "-3.3573703852372156e-67"),
    (0x442e_3d43_7204_e52d, "2.7890840981819507e+20"),
    (0xcd44_7e35_b8b6_d8fe, "-1.6860668391509668e+64"),
    (0x9755_d4c1_3a90_2931, "-2.9205048131065683e-196"),
    (0x1a2b_8f1f_f1fd_42a2, "1.2971714304409807e-182"),
    (0x5143_1193_e6c3_f339, "2.8940701966505206e+83"),
    (0x05b6_e6e3_07d4_bedc, "3.942716995897388e-281"),
    (0xa648_a7dd_0683_9eb9, "-2.9138649815953417e-124"),
    (0x025b_413f_8a9a_021e, "2.60464476415712e-297"),
    (0xe198_8ad9_f06c_144a, "-1.380176098350245e+162"),
    (0xafbd_67f9_6196_99cf, "-9.920174193947555e-79"),
    (0xf813_0c42_3773_0edf, "-2.5157234196648135e+270"),
    (0xb9d1_79e0_6c0f_d4f5, "-3.44654920223904e-30"),
    (0x8712_b8bc_076f_3787, "-1.3518464599291115e-274"),
    (0xc381_e88f_38c0_c8fd, "-1.6130484589462314e+17"),
    (0xf06d_3fef_7019_66a0, "-3.632860948069635e+233"),
];

#[test]
fn floats_are_written_as_python_writes_them() {
    for (bits, want) in FLOATS {
        let float = f64::from_bits(*bits);
        assert_eq!(canonical_json(&json!(float)), *want, "{bits:#018x}");
    }
}

#[test]
fn documents_are_written_as_python_writes_them() {
    for (value, want) in [
        (json!(null), r"null"),
        (json!([]), r"[]"),
        (json!({}), r"{}"),
        (json!("q\"b\\s/"), r#""q\"b\\s/""#),
        (json!("\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{80}"), r#""\b\f\n\r\t\u0000\u001f\u007f\u0080""#),
        (json!("é€𝄞\u{fffe}\u{ffff}"), r#""\u00e9\u20ac\ud834\udd1e\ufffe\uffff""#),
        (json!("\u{2028}"), r#""\u2028""#),
        (json!({"b": 1, "a": [], "A": {}, "": null}), r#"{"":null,"A":{},"a":[],"b":1}"#),
        (
            json!({"𝄞": 1, "\u{ffff}": 2, "é": 3, "z": 4}),
            r#"{"z":4,"\u00e9":3,"\uffff":2,"\ud834\udd1e":1}"#,
        ),
        (
            json!([true, false, null, 0, u64::MAX, i64::MIN]),
            "[true,false,null,0,18446744073709551615,-9223372036854775808]",
        ),
        (json!([1, 1.0, -0.0, 1e2]), "[1,1.0,-0.0,100.0]"),
        (json!({"a": {"c": [{"y": 1, "x": 2}], "b": ""}}), r#"{"a":{"b":"","c":[{"x":2,"y":1}]}}"#),
    ] {
        assert_eq!(canonical_json(&value), want);
    }
}

#[test]
fn hashes_of_descriptors_are_those_that_others_have_stored() {
    for (species, radial, angular, min_cutoff, want) in [
        (
            vec!["H"],
            (1, 2.0),
            (0, 2.0),
            0.1,
            "a2892e3759fbe366799f2b660d35945911346f68fa343fc76a7a0d9db412bac1",
        ),
        (
            vec!["Ti", "O"],
            (3, 5.0),
            (1, 3.0),
            0.5,
            "e4071fd77203905cbb069ca956c7e3d38356f37aa57f85279143617f12757deb",
        ),
    ] {
        let descriptor = json!({
            "ang_cutoff": angular.1,
            "ang_order": angular.0,
            "descriptor_class": "aenet.torch_featurize.featurize.ChebyshevDescriptor",
            "min_cutoff": min_cutoff,
            "multi": species.len() > 1,
            "rad_cutoff": radial.1,
            "rad_order": radial.0,
            "species": species,
        });
        assert_eq!(sha256_hex(canonical_json(&descriptor).as_bytes()), want);
    }
}
