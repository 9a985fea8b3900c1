//! Stages that end together: causes, echoes, panics, stopping.

use std::sync::Weak;

use super::*;

/// A scope, and something that is gone when all of its stages are.
fn scope() -> (Scope<Broken>, Arc<()>, Weak<()>) {
    let alive = Arc::new(());
    let watch = Arc::downgrade(&alive);
    (Scope::new(&Control::new()), alive, watch)
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_that_do_all_their_work_finish() {
    let (mut scope, ..) = scope();
    let (outlet, inlet) = scope.edge("rows", 1);
    scope.blocking("read", move || {
        for row in 0..100 {
            outlet.send_blocking(batch(row, 1))?;
        }
        outlet.end_blocking(7)?;
        Ok::<(), Halt<Broken>>(())
    });
    scope.task("write", async move {
        assert_eq!(drain(&inlet).await?, ((0..100).collect(), 7));
        Ok::<(), Halt<Broken>>(())
    });
    assert_eq!(within_a_minute(scope.join()).await.unwrap(), Ended::Finished);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cause_is_reported_and_not_the_echoes_and_everything_is_joined() {
    for failing in ["read", "pass", "write"] {
        let (mut scope, alive, watch) = scope();
        let fail = move |name, n_items| {
            if name == failing && n_items == 10 {
                Err(Halt::Cause(Broken::Own("cannot go on")))
            } else {
                Ok(())
            }
        };
        let (outlet, between) = scope.edge::<()>("first", 300);
        let (next, inlet) = scope.edge::<()>("second", 300);
        let stays = Arc::clone(&alive);
        scope.blocking("read", move || {
            let _ = &stays;
            for row in 0.. {
                fail("read", row)?;
                outlet.send_blocking(batch(row, 1))?;
            }
            Ok(())
        });
        let stays = Arc::clone(&alive);
        scope.task("pass", async move {
            let _ = &stays;
            for n_items in 0.. {
                fail("pass", n_items)?;
                if let Item::Batch(held) = between.recv().await? {
                    next.send(held).await?;
                }
            }
            Ok(())
        });
        let stays = Arc::clone(&alive);
        scope.blocking("write", move || {
            let _ = &stays;
            for n_items in 0.. {
                fail("write", n_items)?;
                inlet.recv_blocking()?;
            }
            Ok(())
        });
        drop(alive);
        let failed = within_a_minute(scope.join()).await.unwrap_err();
        assert_eq!(failed.to_string(), format!("stage `{failing}` failed"));
        let Failed::Cause { source, .. } = failed else { panic!("{failed}") };
        assert_eq!(source, Broken::Own("cannot go on"));
        assert_eq!(watch.strong_count(), 0, "a stage outlived its scope");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_reported_with_its_stage_and_text() {
    for on_thread in [true, false] {
        let (mut scope, alive, watch) = scope();
        let (outlet, inlet) = scope.edge::<()>("rows", 1);
        let stays = Arc::clone(&alive);
        scope.blocking("read", move || {
            let _ = &stays;
            loop {
                outlet.send_blocking(batch(0, 1))?;
            }
            #[expect(unreachable_code, reason = "says what the stage fails with")]
            Ok::<(), Halt<Broken>>(())
        });
        let n_rows = 1;
        if on_thread {
            scope.blocking("write", move || -> Result<(), Halt<Broken>> {
                inlet.recv_blocking()?;
                panic!("{n_rows} row too many");
            });
        } else {
            scope.task("write", async move {
                inlet.recv().await?;
                assert_eq!(n_rows, 0, "1 row too many");
                Ok::<(), Halt<Broken>>(())
            });
        }
        drop(alive);
        let failed = within_a_minute(scope.join()).await.unwrap_err();
        let text = failed.to_string();
        assert!(text.starts_with("stage `write` panicked: "), "{text}");
        assert!(text.contains("1 row too many"), "{text}");
        assert!(failed.hint().unwrap().contains("bug"));
        assert_eq!(watch.strong_count(), 0, "a stage outlived its scope");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_asked_to_stop_end_as_stopped() {
    let control = Control::new();
    let mut scope = Scope::<Broken>::new(&control);
    let (outlet, inlet) = scope.edge::<()>("rows", 1);
    scope.blocking("read", move || {
        loop {
            outlet.send_blocking(batch(0, 1))?;
        }
        #[expect(unreachable_code, reason = "says what the stage fails with")]
        Ok::<(), Halt<Broken>>(())
    });
    let stop = control.stop.clone();
    let mut n_received = 0;
    scope.blocking("write", move || -> Result<(), Halt<Broken>> {
        while inlet.recv_until_blocking(&stop)?.is_some() {
            n_received += 1;
            if n_received == 5 {
                stop.cancel();
            }
        }
        assert_eq!(n_received, 5);
        Err(Halt::Stopped)
    });
    assert_eq!(within_a_minute(scope.join()).await.unwrap(), Ended::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_cancelled_from_outside_has_no_cause() {
    let control = Control::new();
    let mut scope = Scope::<Broken>::new(&control);
    let (_outlet, inlet) = scope.edge::<()>("rows", 1);
    scope.blocking("write", move || {
        inlet.recv_blocking()?;
        Ok::<(), Halt<Broken>>(())
    });
    control.cancel.cancel();
    assert_eq!(within_a_minute(scope.join()).await.unwrap(), Ended::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn echoes_that_nobody_explains_are_a_failure() {
    let (mut scope, ..) = scope();
    let (outlet, inlet) = scope.edge::<()>("rows", 1);
    scope.blocking("read", move || {
        drop(outlet);
        Ok::<(), Halt<Broken>>(())
    });
    scope.blocking("write", move || {
        inlet.recv_blocking()?;
        Ok::<(), Halt<Broken>>(())
    });
    let failed = within_a_minute(scope.join()).await.unwrap_err();
    assert_eq!(failed.to_string(), "stage `write` found its neighbour gone, and no stage says why");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stage_may_bear_any_name() {
    let (mut scope, ..) = scope();
    scope.blocking("a\0b, longer than an operating system likes it", || {
        Err(Halt::Cause(Broken::Own("broken")))
    });
    let failed = within_a_minute(scope.join()).await.unwrap_err();
    assert!(failed.to_string().starts_with("stage `a\0b, longer"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_leaves_the_others_alone() {
    let control = Control::new();
    let mut failing = Scope::<Broken>::new(&control);
    failing.task("write", async { Err(Halt::Cause(Broken::Own("broken"))) });
    let mut other = Scope::<Broken>::new(&control);
    let (outlet, inlet) = other.edge("rows", 1);
    other.blocking("write", move || {
        futures::executor::block_on(drain::<()>(&inlet))?;
        Ok::<(), Halt<Broken>>(())
    });
    within_a_minute(failing.join()).await.unwrap_err();
    outlet.send(batch(0, 1)).await.unwrap();
    outlet.end(()).await.unwrap();
    assert_eq!(within_a_minute(other.join()).await.unwrap(), Ended::Finished);
    assert!(!control.cancel.is_cancelled());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_that_is_dropped_cancels_its_stages() {
    let (mut scope, alive, _) = scope();
    let (_outlet, inlet) = scope.edge::<()>("rows", 1);
    let (left, has_left) = oneshot::channel();
    scope.blocking("write", move || {
        let _ = &alive;
        let echo = inlet.recv_blocking().map(|_| ());
        left.send(echo).unwrap();
        Ok::<(), Halt<Broken>>(())
    });
    drop(scope);
    assert_eq!(within_a_minute(has_left).await.unwrap(), Err(Echo));
}
