//! `nvext` in the body: obeyed where it is a trusted hop's, wiped out where it is a stranger's, and no other byte changed.

use hyper::body::Bytes;
use warmroute_harness::client::channel_body;
use xxhash_rust::xxh3::xxh3_64;

use super::*;

fn content(extension: &str) -> String {
    format!(
        r#"{{"model": "sim", "max_tokens":4 ,"nvext" : {extension}, "messages":[{{"role":"user","content":"grüße \u0041"}}]}}"#
    )
}

/// As it is to arrive of a stranger: `wiped` is gone, and nothing has moved.
fn without(content: &str, wiped: &[&str]) -> String {
    wiped.iter().fold(content.to_owned(), |content, part| {
        assert!(content.contains(part), "{part} is not in {content}");
        content.replacen(part, &" ".repeat(part.len()), 1)
    })
}

fn hash(content: &str) -> String {
    format!("{:016x}", xxh3_64(content.as_bytes()))
}

/// The hash and the length of what arrived last.
fn last(world: &World, worker: usize) -> Result<(String, usize)> {
    let stats = world.workers[worker].stats();
    let record = stats.recent.last().context("nothing arrived")?;
    Ok((record.body_xxh3.clone(), record.body_bytes))
}

/// A pool whose workers have numbers for names, as Dynamo's instances.
async fn numbered(mode: &str, more: Value) -> Result<World> {
    let mut world = world(mode, more).await?;
    let mut plugin = world.plugin.clone();
    for number in 0..3 {
        plugin["pools"][0]["workers"][number]["name"] = format!("{}", 700 + number).into();
    }
    assert!(world.envoy.apply_plugin_config(&plugin).await?);
    world.plugin = plugin;
    Ok(world)
}

#[tokio::test]
async fn a_trusted_hop_names_its_worker_in_the_body_too_and_headers_beat_it() -> Result<()> {
    // Also with a policy that needs no body.
    let world = numbered("strict", json!({})).await?;
    for (extension, header, want) in [
        (r#"{"backend_instance_id":702}"#, "", Some(2)),
        (r#"{"decode_worker_id":701,"backend_instance_id":702,"dp_rank":0}"#, "", Some(1)),
        (r#"{"decode_worker_id":701}"#, "700", Some(0)),
        (r#"{"decode_worker_id":799}"#, "", None),
        (r#"{"decode_worker_id":"701"}"#, "", None),
    ] {
        let content = content(extension);
        let headers = if header.is_empty() { vec![SECRET] } else { vec![SECRET, ("x-worker-instance-id", header)] };
        let reply = world.client().post(CHAT, &headers, content.clone()).await?;
        match want {
            Some(want) => {
                assert_eq!(server(&world, &reply)?, want, "{extension}");
                assert_eq!(last(&world, want)?, (hash(&content), content.len()), "{extension}");
            }
            None => assert_eq!(reply.status, 503, "{extension}: {}", reply.text()),
        }
    }
    world.end().await
}

#[tokio::test]
async fn a_stranger_s_words_in_the_body_are_wiped_and_no_other_byte_changes() -> Result<()> {
    let cases: &[(&str, &[&str])] = &[
        (r#"{"backend_instance_id":702}"#, &[r#""backend_instance_id":702"#]),
        (r#"{"a":1, "decode_worker_id" : 702 ,"b":[2]}"#, &[r#", "decode_worker_id" : 702"#]),
        (
            r#"{"decode_worker_id":702,"dp_rank":1,"agent_hints":{"osl":4},"prefill_worker_id":5,"prefill_dp_rank":0}"#,
            &[r#""decode_worker_id":702,"dp_rank":1,"#, r#","prefill_worker_id":5,"prefill_dp_rank":0"#],
        ),
        (
            r#"{"routing_constraints":{"required_taints":["x"]}}"#,
            &[r#""routing_constraints":{"required_taints":["x"]}"#],
        ),
        (r#"{"back\u0065nd_instance_id":702}"#, &[r#""back\u0065nd_instance_id":702"#]),
    ];
    // A policy that reads bodies, and one that does not but for Dynamo's sake.
    for more in [json!({ "policy": "hybrid" }), json!({ "policy": "round-robin" })] {
        let reads_for_dynamo = more["policy"] == "round-robin";
        let mut world = numbered("strict", more).await?;
        if reads_for_dynamo {
            world.plugin["pools"][0]["engine"] = "dynamo".into();
            assert!(world.envoy.apply_plugin_config(&world.plugin).await?);
        }
        let mut removed = 0;
        for (extension, wiped) in cases {
            let content = content(extension);
            let want = without(&content, wiped);
            let json: Value = serde_json::from_str(&want)?;
            assert!(json["nvext"].is_object());
            let reply = world.client().post(CHAT, &[], content).await?;
            let worker = server(&world, &reply)?;
            assert_eq!(last(&world, worker)?, (hash(&want), want.len()), "{extension}");
            removed += 1;
        }
        assert_eq!(world.count("hints_removed_total").await?, removed);
        for harmless in [r#"{"agent_hints":{"priority":1}}"#, "null", r#"{}"#] {
            let content = content(harmless);
            let reply = world.client().post(CHAT, &[], content.clone()).await?;
            assert_eq!(last(&world, server(&world, &reply)?)?, (hash(&content), content.len()));
        }
        assert_eq!(world.count("hints_removed_total").await?, removed);
        assert_eq!(world.count("directed_total").await?, 0);
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_extension_that_is_an_array_and_the_engines_own_members_are_wiped_too() -> Result<()> {
    let world = numbered("strict", json!({ "policy": "hybrid" })).await?;
    let cases: &[(&str, &str)] = &[
        ("[null,null,null,702]", r#","nvext" : [null,null,null,702]"#),
        ("[7]", r#","nvext" : [7]"#),
        (r#"{},"data_parallel_rank":1"#, r#","data_parallel_rank":1"#),
        (r#"{},"kv_transfer_params":{"remote_host":"a"}"#, r#","kv_transfer_params":{"remote_host":"a"}"#),
    ];
    for (extension, wiped) in cases {
        let content = content(extension);
        let want = without(&content, &[wiped]);
        let reply = world.client().post(CHAT, &[], content.clone()).await?;
        assert_eq!(last(&world, server(&world, &reply)?)?, (hash(&want), want.len()), "{extension}");
        let reply = world.client().post(CHAT, &[SECRET, ("x-worker-instance-id", "701")], content.clone()).await?;
        assert_eq!(server(&world, &reply)?, 1, "{extension}");
        assert_eq!(last(&world, 1)?, (hash(&content), content.len()), "a trusted hop's goes on: {extension}");
    }
    assert_eq!(world.count("hints_removed_total").await?, cases.len() as u64);
    world.end().await
}

#[tokio::test]
async fn they_are_wiped_or_counted_also_where_the_pool_is_not_known() -> Result<()> {
    let config = json!({ "modelHeader": "x-gateway-model-name", "request": { "scanBytesMax": 65_536 } });
    let world = numbered("strict", config).await?;
    let model = ("x-gateway-model-name", "other");
    let content = content(r#"{"decode_worker_id":702}"#);
    let want = without(&content, &[r#""decode_worker_id":702"#]);
    let reply = world.client().post(CHAT, &[model], content.clone()).await?;
    assert_eq!(last(&world, server(&world, &reply)?)?, (hash(&want), want.len()));
    let reply = world.client().post(CHAT, &[model, SECRET], content).await?;
    assert_eq!(reply.header("x-warmroute-reason"), Some("unknown_pool"), "{}", reply.text());
    let filler = "long ".repeat(40_000);
    let long = format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"{filler}"}}]}}"#);
    server(&world, &world.client().post(CHAT, &[model], long).await?)?;
    let _ = world.client().post(CHAT, &[model, ("content-encoding", "gzip")], "no gzip").await?;
    assert_eq!(world.count("hints_unread_total").await?, 2);
    assert_eq!(world.count("hints_removed_total").await?, 1);
    world.end().await
}

#[tokio::test]
async fn it_is_wiped_out_of_a_body_in_pieces_and_of_unknown_length() -> Result<()> {
    let world = numbered("strict", json!({ "policy": "hybrid" })).await?;
    let content = content(r#"{"a":1,"decode_worker_id":702}"#);
    let want = without(&content, &[r#","decode_worker_id":702"#]);
    let (mut sender, stream) = channel_body();
    let client = world.client();
    let feed = async {
        for piece in content.as_bytes().chunks(5) {
            sender.send_data(Bytes::copy_from_slice(piece)).await?;
        }
        drop(sender);
        anyhow::Ok(())
    };
    let (reply, fed) = tokio::join!(client.send("POST", CHAT, &[], stream), feed);
    fed?;
    let worker = server(&world, &reply?)?;
    assert_eq!(last(&world, worker)?, (hash(&want), want.len()));
    world.end().await
}

#[tokio::test]
async fn what_cannot_be_looked_at_is_counted() -> Result<()> {
    let limit = json!({ "policy": "hybrid", "request": { "scanBytesMax": 65_536 } });
    let world = numbered("soft", limit).await?;
    let filler = "long ".repeat(40_000);
    let content =
        format!(r#"{{"model":"sim","messages":[{{"role":"user","content":"{filler}"}}],"nvext":{{"dp_rank":1}}}}"#);
    let reply = world.client().post(CHAT, &[], content.clone()).await?;
    assert_eq!(last(&world, server(&world, &reply)?)?, (hash(&content), content.len()));
    assert_eq!(world.count("hints_unread_total").await?, 1);
    let encoded = [("content-encoding", "gzip")];
    let _ = world.client().post(CHAT, &encoded, "no gzip").await?;
    assert_eq!(world.count("hints_unread_total").await?, 2);
    // Nobody else obeys what stands there.
    let mut vllm = world.plugin.clone();
    vllm["pools"][0]["engine"] = "vllm".into();
    assert!(world.envoy.apply_plugin_config(&vllm).await?);
    let reply = world.client().post(CHAT, &[], content).await?;
    server(&world, &reply)?;
    assert_eq!(world.count("hints_unread_total").await?, 2);
    world.end().await
}

#[tokio::test]
async fn bodies_that_nobody_reads_are_counted_where_they_may_name_a_worker() -> Result<()> {
    // A policy that needs no body, and workers of which it is not said what they run.
    let mut world = numbered("soft", json!({ "policy": "round-robin" })).await?;
    let mut want = 0;
    let other = "/v1/audio/speech";
    for (engine, path, headers, is_counted) in [
        ("auto", CHAT, vec![], true),
        ("auto", other, vec![], true),
        ("auto", CHAT, vec![SECRET, ("content-encoding", "gzip")], true),
        ("auto", CHAT, vec![SECRET, ("content-encoding", "gzip"), ("x-worker-instance-id", "701")], false),
        ("auto", CHAT, vec![SECRET], false),
        ("dynamo", CHAT, vec![], false),
        ("dynamo", other, vec![], true),
        ("vllm", CHAT, vec![], false),
        ("vllm", other, vec![], false),
    ] {
        world.plugin["pools"][0]["engine"] = engine.into();
        assert!(world.envoy.apply_plugin_config(&world.plugin).await?);
        let _ = world.client().post(path, &headers, content("{}")).await?;
        want += u64::from(is_counted);
        assert_eq!(world.count("hints_unread_total").await?, want, "{engine} {path} {headers:?}");
    }
    let _ = world.client().get(other).await?;
    assert_eq!(world.count("hints_unread_total").await?, want);
    world.end().await
}
