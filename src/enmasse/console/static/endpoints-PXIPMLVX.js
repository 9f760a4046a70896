import{a as D}from"./chunk-CTRT4DZO.js";import{c as k}from"./chunk-5U3UNXJB.js";import{d as z,e as P,f as X,g as K,h as p,i as m}from"./chunk-XDZRF5TC.js";import"./chunk-EQUGYJSW.js";import{a as j}from"./chunk-ZW2QDMXM.js";import{g as V,i as Y}from"./chunk-4QRHCZLH.js";import"./chunk-56FLLOVB.js";import{c as L,d as M,e as N}from"./chunk-H6P7LVCD.js";import"./chunk-ZGQVF3JS.js";import"./chunk-OZGXRYUH.js";import{b as H}from"./chunk-644N3J4S.js";import"./chunk-NOSRN6OO.js";import{b as U}from"./chunk-4KN5MMOI.js";import{d as R}from"./chunk-2T4NNJJ5.js";import"./chunk-THH72DBH.js";import"./chunk-UR3DQCT2.js";import"./chunk-DLK3BUBO.js";import{Ia as Q,Ta as W,U as E,Ua as B,Ya as G,Za as J,_ as F,b as v,c as ue,f as A,ha as I,xa as O}from"./chunk-5RWK2TXD.js";var oe=v(ue(),1);var n=JSON.stringify,$=e=>e.tls?"amqps":"amqp",u=e=>e.host.includes(":")?`[${e.host}]`:e.host,g="PASSWORD",b=e=>e.user??`anonymous@${e.space}`,x=e=>e.user===null?"none":g,Z=e=>e.user!==null||e.tls,ee=e=>e.host.includes(":")||/^[0-9.]+$/.test(e.host),te=[{language:"Python",install:"pip install python-qpid-proton",file:"hello.py",text:e=>`from proton import Message${e.tls?", SSLDomain":""}
from proton.utils import BlockingConnection
${e.tls?`
tls = SSLDomain(SSLDomain.MODE_CLIENT)
tls.set_trusted_ca_db("ca.crt")
tls.set_peer_authentication(SSLDomain.${ee(e)?"VERIFY_PEER)  # Proton compares no IP addresses":"VERIFY_PEER_NAME)"}
`:""}
connection = BlockingConnection(
    "${$(e)}://${u(e)}:${e.port}",${Z(e)?`
    user=${n(b(e))},
    password="${x(e)}",${e.user===null?`
    allowed_mechs="PLAIN",`:""}`:`
    virtual_host=${n(e.space)},`}${e.tls?`
    ssl_domain=tls,`:""}
)
sender = connection.create_sender(${n(e.address)})
receiver = connection.create_receiver(${n(e.address)})
sender.send(Message(body="hello", durable=True))
print(receiver.receive(timeout=5).body)
receiver.accept()
connection.close()
`},{language:"Java",install:"org.apache.qpid:qpid-jms-client (Maven)",file:"Hello.java",text:e=>{let a=[`amqp.vhost=${encodeURIComponent(e.space)}`];e.tls&&a.push("transport.trustStoreLocation=ca.p12","transport.trustStorePassword=changeit");let i=e.user===null?"":`${n(e.user)}, "${g}"`;return`import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Hello {
  public static void main(String[] arguments) throws JMSException {${e.tls?`
    // keytool -importcert -noprompt -alias enmasse -file ca.crt -keystore ca.p12 -storepass changeit`:""}
    var factory = new JmsConnectionFactory(
        "${$(e)}://${u(e)}:${e.port}?${a.join("&")}");
    try (Connection connection = factory.createConnection(${i})) {
      connection.start();
      Session session = connection.createSession();
      Queue address = session.createQueue(${n(e.address)});
      MessageConsumer receiver = session.createConsumer(address);
      session.createProducer(address).send(session.createTextMessage("hello"));
      System.out.println(((TextMessage) receiver.receive(5000)).getText());
    }
  }
}
`}},{language:"JavaScript",install:"npm install rhea",file:"hello.mjs",text:e=>`import rhea from "rhea";${e.tls?`
import { readFileSync } from "node:fs";`:""}

const container = rhea.create_container();
container.on("receiver_open", ({ connection }) => connection.open_sender(${n(e.address)}));
container.once("sendable", ({ sender }) => sender.send({ body: "hello", durable: true }));
container.on("message", ({ message, connection }) => {
  console.log(message.body);
  connection.close();
});
container
  .connect({
    host: ${n(e.host)},
    port: ${e.port},
    hostname: ${n(e.space)},${e.tls?`
    transport: "tls",
    servername: `+n(e.host)+`,
    ca: readFileSync("ca.crt"),`:""}${e.user===null?`
    username: "anonymous",`:`
    username: ${n(e.user)},
    password: "${g}",`}
    reconnect: false,
  })
  .open_receiver(${n(e.address)});
`},{language:"Go",install:"go get github.com/Azure/go-amqp",file:"main.go",text:e=>`package main

import (
	"context"${e.tls?`
	"crypto/tls"
	"crypto/x509"`:""}
	"fmt"
	"log"${e.tls?`
	"os"`:""}

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()${e.tls?`
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile("ca.crt")))`:""}
	conn := must(amqp.Dial(ctx, "${$(e)}://${u(e)}:${e.port}", &amqp.ConnOptions{
		HostName: ${n(e.space)},${e.tls?`
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: ${n(e.host)}},`:""}
		SASLType: ${e.user===null?"amqp.SASLTypeAnonymous()":`amqp.SASLTypePlain(${n(e.user)}, "${g}")`},
	}))
	defer conn.Close()
	session := must(conn.NewSession(ctx, nil))
	receiver := must(session.NewReceiver(ctx, ${n(e.address)}, nil))
	sender := must(session.NewSender(ctx, ${n(e.address)}, nil))
	message := amqp.NewMessage([]byte("hello"))
	message.Header = &amqp.MessageHeader{Durable: true}
	if err := sender.Send(ctx, message, nil); err != nil {
		log.Fatal(err)
	}
	got := must(receiver.Receive(ctx, nil))
	fmt.Println(string(got.GetData()))
	if err := receiver.AcceptMessage(ctx, got); err != nil {
		log.Fatal(err)
	}
}
`},{language:"C++",install:"libqpid-proton-cpp-dev (apt); link with -lqpid-proton-cpp",file:"hello.cpp",text:e=>`#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/sender.hpp>${e.tls?`
#include <proton/ssl.hpp>`:""}
#include <iostream>

struct Hello : proton::messaging_handler {
  void on_container_start(proton::container& container) override {
    proton::connection_options options;
    ${Z(e)?`options.user(${n(b(e))}).password("${x(e)}");${e.user===null?`
    options.sasl_allowed_mechs("PLAIN");`:""}`:`options.virtual_host(${n(e.space)});`}${e.tls?`
    options.ssl_client_options(proton::ssl_client_options("ca.crt"${ee(e)?", proton::ssl::VERIFY_PEER));  // Proton compares no IP addresses":"));"}`:""}
    proton::connection connection = container.connect("${$(e)}://${u(e)}:${e.port}", options);
    connection.open_receiver(${n(e.address)});
    connection.open_sender(${n(e.address)});
  }
  void on_sendable(proton::sender& sender) override {
    sender.send(proton::message("hello"));
    sender.close();
  }
  void on_message(proton::delivery& delivery, proton::message& message) override {
    std::cout << proton::get<std::string>(message.body()) << std::endl;
    delivery.connection().close();
  }
};

int main() {
  Hello hello;
  proton::container(hello).run();
}
`},{language:"MQTT",install:"apt-get install mosquitto-clients",file:"hello.sh",text:e=>{let a=`-u ${l(b(e))} -P ${l(x(e))}`,i=`-h ${e.host} -p ${e.port}${e.tls?" --cafile ca.crt":""} ${a} -V 5`;return`mosquitto_sub ${i} -t ${l(e.address)} -q 1 -C 1 -W 5 &
sleep 1
mosquitto_pub ${i} -t ${l(e.address)} -q 1 -m hello
wait
`}},{language:"HTTP",install:"apt-get install curl",file:"hello.sh",text:e=>{let a=`/v1/spaces/${e.space}/addresses/${encodeURIComponent(e.address)}`,i=l(`http${e.tls?"s":""}://${u(e)}:${e.port}${a}`),r=`curl --silent --show-error${e.tls?" --cacert ca.crt":""}${e.user===null?"":` -u ${l(`${e.user}:${g}`)}`}`;return`ADDRESS=${i}
# With auto=true messages are accepted as they come; without it each has a lease, to be settled.
${r} --data '' "$ADDRESS/receive?wait=5&auto=true" &
sleep 1
${r} --data hello -H 'Content-Type: text/plain' "$ADDRESS/messages"
wait
`}}];function l(e){return`'${e.replaceAll("'",`'"'"'`)}'`}var t=v(A(),1),se=[["amqp","AMQP"],["amqps","AMQPS"],["amqp-ws","AMQP-WS"],["amqp-wss","AMQP-WSS"],["http","HTTP"],["https","HTTPS"]],ge=["queue","anycast","topic","multicast"];function ne(e){return e==="localhost"||e==="::1"||e.startsWith("127.")}function he(e,a){return(e.spec.endpoints??[]).find(r=>r.name===a.name)?.expose?.type??"installation"}function $e(){let e=U(),[a,i]=W(),{data:r,error:_}=G(`${e.inNamespace}/addressspaces`,e.name),{data:re}=J(O(`${e.api}/rows/addresses`,{limit:100})),ae=ge.map(s=>re?.items.find(o=>o.type===s)).find(s=>s!==void 0),C=a.get("address")??ae?.address??"orders",d=r?.status?.endpointStatuses??[],f=d.find(s=>s.externalHost),S=f?.externalHost??window.location.hostname.replace(/^\[|\]$/g,""),w=r?.spec.authenticationService,h=w?.type==="none"||w?.name?.startsWith("none")===!0,[ie,ce]=(0,oe.useState)(),c=ie??(!h||!ne(S)||f!==void 0),le=c&&ne(S)?"localhost":S,y=f?.externalPorts??d[0]?.servicePorts??{},de=(c?y.amqps:y.amqp)??Object.values(y)[0],pe={host:le,port:de??0,tls:c,space:`${e.name}.${e.namespace}`,address:C,user:h?null:`USER@${e.name}.${e.namespace}`},T=r?.status?.caCert;return(0,t.jsxs)(B,{title:"Endpoints",trail:[{title:"Spaces",to:"/spaces"},{title:e.name,to:`${e.to}/addresses`}],actions:T&&(0,t.jsx)(E,{variant:"secondary",onClick:()=>V("ca.crt",T,"application/x-pem-file"),children:"Download ca.crt"}),about:"Where clients connect. Every port speaks AMQP, MQTT, STOMP, HTTP and WebSocket, in the clear and over TLS.",children:[_&&(0,t.jsx)(Q,{error:_}),r&&d.length===0&&(0,t.jsx)(j,{title:"No endpoint yet",children:"The space is being configured; its endpoints appear here as soon as it is ready."}),r&&d.length>0&&(0,t.jsxs)(t.Fragment,{children:[(0,t.jsxs)(z,{"aria-label":"Endpoints",variant:"compact",gridBreakPoint:"grid-md",children:[(0,t.jsx)(X,{children:(0,t.jsxs)(P,{children:[(0,t.jsx)(p,{children:"Name"}),(0,t.jsx)(p,{children:"Type"}),(0,t.jsx)(p,{children:"Host"}),se.map(([,s])=>(0,t.jsx)(p,{children:s},s))]})}),(0,t.jsx)(K,{children:d.flatMap(s=>[{name:s.name,type:"installation",host:s.serviceHost,ports:s.servicePorts},...s.externalHost?[{name:s.name,type:he(r,s),host:s.externalHost,ports:s.externalPorts}]:[]].map(o=>(0,t.jsxs)(P,{children:[(0,t.jsx)(m,{dataLabel:"Name",children:o.name}),(0,t.jsx)(m,{dataLabel:"Type",children:(0,t.jsx)(k,{isCompact:!0,children:o.type})}),(0,t.jsx)(m,{dataLabel:"Host",className:"em-wrap",children:o.host}),se.map(([q,me])=>(0,t.jsx)(m,{dataLabel:me,children:o.ports?.[q]??"\u2013"},q))]},`${o.name}/${o.type}`)))})]}),(0,t.jsxs)(L,{className:"em-above",children:[(0,t.jsx)(N,{component:"h2",children:"Send and receive a message"}),(0,t.jsxs)(M,{children:[(0,t.jsxs)(I,{alignItems:{default:"alignItemsFlexEnd"},columnGap:{default:"columnGapXl"},className:"em-figures",children:[(0,t.jsx)(H,{label:"Address",fieldId:"snippet-address",children:(0,t.jsx)(R,{id:"snippet-address",value:C,onChange:(s,o)=>i({address:o},{replace:!0}),autoComplete:"off"})}),(0,t.jsx)(D,{id:"snippet-tls",label:"TLS",isChecked:c,onChange:(s,o)=>ce(o)})]}),(0,t.jsx)(Y,{label:"Language",tabs:te.map(s=>({name:s.language,text:s.text(pe),file:s.file,note:(0,t.jsxs)(F,{component:"p",className:"em-above",children:["First: ",(0,t.jsx)("code",{children:s.install}),c&&T&&" and download ca.crt beside it",h?"":". Put a user of the space in the place of USER and PASSWORD",".",!h&&!c&&" In the clear only clients on the node's machine are let in, and those that log in by SCRAM, unless the node was started with --allow-insecure-plain."]})}))})]})]})]})]})}export{$e as default};
