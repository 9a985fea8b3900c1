//! Codes of object stores, and of pushing to them and pulling from them.

macro_rules! remote_codes {
    ([$next:ident $($later:ident)*] $($before:tt)*) => {
        $next! {
            [$($later)*]
            $($before)*
            RemoteUrl = "remote-url":
                "A URL cannot be used.",
                "Its scheme is not known, it names no bucket, or it holds a user, a password or a query.",
                "Write s3://BUCKET/PREFIX, gs://, az://, https:// or file:///; credentials come from the environment.",
                "cannot use `ftp://h/p`: this URL cannot be used (it has a scheme that is not known)";
            RemotePlainHttp = "remote-plain-http":
                "The endpoint of an object store is plain HTTP.",
                "Anybody on the way could read and change what is sent, so it must be allowed.",
                "Use an https endpoint, or set `allow_http = true` (AWS_ALLOW_HTTP=true in the environment) for a network that you trust.",
                "cannot use `s3://b/p`: the endpoint is plain HTTP, which is not allowed";
            RemoteSetup = "remote-setup":
                "The settings of an object store in the environment do not fit together.",
                "A variable that begins with AWS_, GOOGLE_ or AZURE_ has a value that it cannot take, or another is missing.",
                "Mend the variable that is named.",
                "cannot set up access to `az://c`: the settings in the environment do not fit together";
            RemoteNoBucket = "remote-no-bucket":
                "There is no such bucket or container.",
                "It was never created, is misspelt, or belongs to another endpoint.",
                "Create it, or correct the URL or the endpoint.",
                "cannot list `s3://b/p`: there is no such bucket (404 NoSuchBucket)";
            RemoteNotFound = "remote-not-found":
                "An object is not there.",
                "The URL is misspelt, or the object was removed.",
                "Look at the URL.",
                "cannot read `s3://b/p/current.json`: it is not there";
            RemoteUploadLost = "remote-upload-lost":
                "A store does not know an upload any more that was begun.",
                "It was aborted, or expired by a rule of the bucket.",
                "Run the same command again; it begins this file from its start.",
                "cannot complete `s3://b/p/x.bin`: the upload is not known any more (404 NoSuchUpload)";
            RemoteDenied = "remote-denied":
                "The credentials do not allow what was tried.",
                "They are good, but lack a permission for this bucket or prefix.",
                "Let them list, read, write and delete below the prefix.",
                "cannot write `s3://b/p/x`: no permission (403 AccessDenied)";
            RemoteCredentials = "remote-credentials":
                "There are no credentials, or the store does not accept them.",
                "Variables are not set, belong to another endpoint, or hold temporary credentials that have expired.",
                "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or what your provider has instead.",
                "cannot list `s3://b/p`: the credentials are not accepted (403 SignatureDoesNotMatch)";
            RemoteEndpoint = "remote-endpoint":
                "The region or endpoint is wrong.",
                "The bucket is in another region, or something else than an object store answers.",
                "Check AWS_REGION and AWS_ENDPOINT_URL, or what your provider has instead.",
                "cannot list `s3://b/p`: the region or endpoint is wrong (301 PermanentRedirect)";
            RemoteClock = "remote-clock":
                "The clock of this machine is wrong.",
                "Signatures hold the time, and a store refuses those that are minutes away from its own.",
                "Set the clock of this machine.",
                "cannot list `s3://b/p`: the clock of this machine is wrong (403 RequestTimeTooSkewed)";
            RemoteThrottled = "remote-throttled":
                "A store asks to be asked less, and went on doing so.",
                "More requests came than it takes, from here or elsewhere.",
                "Wait, or lower the number of requests at once, and run the same command again.",
                "cannot write `s3://b/p/x`: the store asks to be asked less (503 SlowDown)";
            RemoteNetwork = "remote-network":
                "No answer of a store came through.",
                "Its name is not known, nobody listens there, the connection was cut or stood still, or its certificate is not trusted.",
                "Check the network and the endpoint, and run the same command again.",
                "cannot list `s3://b/p`: no answer came through (Connection refused)";
            RemoteExists = "remote-exists":
                "An object stands where one was to be created, or is not the one that was to be replaced.",
                "Somebody else has written it meanwhile, or writes it now.",
                "Look at what stands there; run the same command again if it is yours.",
                "cannot create `s3://b/p/_COMPLETE`: it exists already";
            RemoteUnsupported = "remote-unsupported":
                "A store, or a place of that kind, cannot do what was asked.",
                "Places at http and https can only be read, and some stores lack conditional writes.",
                "Use another place.",
                "cannot write to `https://h/p`: the store cannot do this";
            RemoteServer = "remote-server":
                "A store failed, or refused for a reason that is not known here.",
                "What it said stands in the message.",
                "Run the same command again; ask whoever runs the store if it stays.",
                "cannot read `s3://b/p/x`: the store failed (500 InternalError)";
            RemoteDamaged = "remote-damaged":
                "What came from a store is not what was to come.",
                "Bytes were changed on the way, or in the store.",
                "Run the same command again; restore the object if it stays.",
                "cannot write `s3://b/p/x`: what came is not what was to come (400 BadDigest)";
            PushChanged = "push-changed":
                "A local file is not what was sealed, and is not pushed.",
                "It was changed or removed after it was sealed, or the disk lost bytes. Files are hashed as they are sent.",
                "`rowmill verify` names every damage; remove the shard's folder, run the pipeline again, then push.",
                "`data/t/…/x.bin` is not what was sealed, and is not pushed";
            PushConflict = "push-conflict":
                "Something else stands where an object of the dataset belongs, or in the folder of a shard.",
                "Somebody has put it there, or changed it since it was pushed.",
                "Look at who put it there; `rowmill push --replace` puts the file in its place. What is no file of a shard has to be deleted.",
                "`s3://b/t/…/x.bin` is not the file of that name: 12 bytes, not 4096";
            PushNotKept = "push-not-kept":
                "A store does not have what was sent, or not as it was sent.",
                "Somebody has removed or replaced it meanwhile, or the store loses what it confirms.",
                "Run the same command again; it sends what is missing. Find out who else writes there.",
                "`s3://b/t/…/x.bin` was sent and is not there as it was sent: nothing is there";
            PushLost = "push-lost":
                "A shard whose rows are not on this disk is not in the store any more.",
                "Its rows were dropped here after it had been pushed; somebody has removed it there since.",
                "Remove the shard's local folder, which the hint names, and run the pipeline again: it is built again. Then push, where the run does not.",
                "`s3://b/t/…/shards/…` is not there any more, and its rows are not here";
            PushOvertaken = "push-overtaken":
                "Another generation was put in the same place since a push began, or since the same generation was pushed from here.",
                "Two machines push datasets of one cache key. The first that ends counts, the other is refused, and none goes back unasked to a generation that it has pushed before.",
                "Find out which of the two is wanted; `rowmill push --replace` lets the sentinel name this one.",
                "`s3://b/t/…` holds generation 9f… now, put there since the push of 3a… began";
            PushContradiction = "push-contradiction":
                "Two machines that build one dataset have made other rows of the same inputs.",
                "A hook does not answer equal batches equally: it draws random numbers, asks a service, or depends on the machine.",
                "Mend the hook and give it another `id`; or remove one of the two records, at the place and in `partitions/` of the machine that has it, and run again.",
                "`s3://b/t/…/partitions/9f…-1.json` and `9f…-2.json` beside it say that the same inputs became other rows";
            PushBusy = "push-busy":
                "Another push of the same dataset to the same place is at work: on this machine, or, for `clean`, on any.",
                "A place has one push of a machine at a time, and nothing is removed beside one. The lock is the system's: it is gone when its holder is; in the store a push that was killed counts for an hour.",
                "Wait until it ends, or stop it.",
                "another push to `s3://b/t` is at work (pid 12 on host)";
        }
    };
}
