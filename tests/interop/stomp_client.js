// Speaks STOMP over WebSocket with @stomp/stompjs: what is asked for comes as JSON, what happened goes out as JSON.
'use strict';

const {Client} = require('@stomp/stompjs');
const WebSocket = require('ws');

const asked = JSON.parse(process.argv[2]);
const report = {received: [], receipts: [], errors: [], version: null};

const client = new Client({
    webSocketFactory: () => new WebSocket(asked.url, asked.protocols || ['v12.stomp', 'v11.stomp', 'v10.stomp'], asked.options),
    connectHeaders: asked.headers,
    forceBinaryWSFrames: Boolean(asked.binary),
    reconnectDelay: 0,
    heartbeatIncoming: 1000,
    heartbeatOutgoing: 1000,
});

function finish() {
    if (report.received.length >= asked.messages.length && report.receipts.length >= asked.messages.length) {
        client.deactivate();
    }
}

client.onConnect = (frame) => {
    report.version = frame.headers.version;
    client.watchForReceipt('subscribed', () => {
        asked.messages.forEach((message, number) => {
            client.watchForReceipt('r' + number, () => {
                report.receipts.push(number);
                finish();
            });
            client.publish({
                destination: asked.target,
                headers: Object.assign({receipt: 'r' + number}, message.headers),
                body: message.body,
            });
        });
    });
    client.subscribe(asked.source, (message) => {
        report.received.push({body: message.body, headers: message.headers});
        message.ack();
        finish();
    }, {ack: 'client-individual', receipt: 'subscribed'});
};
client.onStompError = (frame) => {
    report.errors.push(frame.headers);
    client.deactivate();
};
client.onWebSocketError = (event) => report.errors.push({message: String(event.message)});
client.onWebSocketClose = () => {
    process.stdout.write(JSON.stringify(report), () => process.exit(0));
};
client.activate();
